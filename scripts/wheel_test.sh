#!/usr/bin/env bash
# Build the wheel, install it into an empty environment, and run the main job from an empty folder.
#   scripts/wheel_test.sh --data DIR      DIR: the source files of the demo's corpus
# The environment borrows the libraries of .venv, so that nothing is downloaded.
set -euo pipefail
# shellcheck source=scripts/venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/venv.sh"
[ $# = 2 ] && [ "$1" = --data ] || die "give --data DIR, the folder with the source files of the corpus"
data=$(cd "$2" && pwd)
use_venv main

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/checkout" "$work/empty"
# a build leaves its files in the tree
git -C "$REPO" ls-files -z | (cd "$REPO" && tar --null --files-from=- --create) | tar -C "$work/checkout" --extract
"$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" "$work/checkout"

"$PYTHON" -m venv "$work/venv"
libraries=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
own=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$libraries" >"$own/borrowed.pth"
# fairseq looks for --user-dir NAME next to itself
cp -Rp "$libraries/fairseq" "$libraries/fairseq_cli" "$own"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$work"/capsnmt-*.whl

cd "$work/empty"
unset PYTHONPATH
export PATH=$work/venv/bin:$PATH
python -c 'import capsnmt, sys; sys.exit(not capsnmt.__file__.startswith(sys.prefix))' ||
  die "the installed wheel is not what Python imports"
for name in prepare run evaluate translate report analyse average export; do
  "capsnmt-$name" --help >/dev/null
done
capsnmt-prepare catalogues --output prepared --local "$data"
# a configuration of the user adds to those in the wheel
mkdir -p configs/demo
echo 'extends: demo/em_routing' >configs/demo/mine.yaml
row=(--cpu --threads 1 --max-update 2 --output runs --prepared prepared --data "$data"
  --set train.save-interval-updates=1 --set train.log-interval=1 --set average.last-updates=2
  --set generate.max-len-a=0 --set generate.max-len-b=5)
capsnmt-run --config demo/mine "${row[@]}"
capsnmt-average runs/mine/seed-1/checkpoints --last-updates 2 --output average.pt
test -s average.pt
python -m fairseq_cli.train prepared/bin --user-dir capsnmt --arch capsnmt_transformer_tiny --cpu \
  --optimizer adam --max-tokens 256 --max-update 1 --disable-validation --save-dir trained >train.log
capsnmt-export trained/checkpoint_last.pt --output transformer.pt
test -s transformer.pt
capsnmt-evaluate runs/mine/seed-1/generate-test.txt --json scores.json
head -n 20 prepared/raw/test.en | capsnmt-translate runs/mine/seed-1 >translated
test "$(wc -l <translated)" = 20
capsnmt-report runs --output page
test -s page/report.md
capsnmt-analyse runs --output page/analysis --sentences 20 --only attention,agreement
test -s page/analysis/analysis.html
echo "== the wheel runs the main job"

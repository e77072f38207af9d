#!/usr/bin/env bash
# The wheel in environments that hold nothing else: the core, the core with each extra, and all extras.
#   scripts/extras_test.sh DEMO      DEMO: the folder of a finished scripts/demo.sh
# In each, every command works, or names the extra that it lacks in one line.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/venv.sh
. "${self%/*}/venv.sh"
helps "$self" "$@"
[ $# = 1 ] && [ -e "$1/em_routing/seed-1/scores.json" ] || die "give DEMO, the folder of a finished demo"
demo=$(readlink -f "$1")
use_venv main

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2031  # scripts/venv.sh has its own in a subshell
export TMPDIR=$work # fairseq-train's own workers leave folders there
mkdir "$work/checkout" "$work/empty"
# a build leaves its files in the tree
git -C "$REPO" ls-files -z | (cd "$REPO" && tar --null --files-from=- --create) | tar -C "$work/checkout" --extract
mkdir -p "$work/checkout/build/lib/capsnmt/configs"
touch "$work/checkout/build/lib/capsnmt/configs/old.yaml" # of an earlier version
"$PYTHON" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" "$work/checkout"
# It has every module, configuration and recipe, the models of the project, and nothing else.
git -C "$REPO" ls-files capsnmt configs data_prep/recipes |
  sed -n -E -e 's#^data_prep/#capsnmt/#' -e 's#^configs/#capsnmt/&#' -e '/\.(py|j2|html|js|cpp|h|yaml)$/p' |
  LC_ALL=C sort >"$work/tracked"
"$PYTHON" -m zipfile --list "$work"/capsnmt-*.whl |
  awk 'NR > 1 && !/\.dist-info\/|^capsnmt\/trained\// { print $1 }' | LC_ALL=C sort | diff "$work/tracked" -

# with NAME FROM EXTRAS : makes the environment NAME of that of FROM by installing extras, and uses it. .venv has
# had every package, so uv has them too, unless its cache was emptied.
with() {
  environment=$1
  bin=$work/$1/bin
  cp -al "$work/$2" "$work/$1"
  local wheel=(-c "$REPO/constraints.txt" "capsnmt$3 @ $(echo "$work"/capsnmt-*.whl)")
  UV_OFFLINE=true install_with_uv --python "$bin/python" "${wheel[@]}" >/dev/null 2>&1 ||
    install "$bin/python" "${wheel[@]}" >"$work/errors" || die "$1: $(cat "$work/errors")"
}

# capsnmt COMMAND ARGUMENTS... : runs a command of the environment that is used; it must succeed
capsnmt() {
  "$bin/python" "$bin/capsnmt-$1" "${@:2}" 2>"$work/errors" || {
    cat "$work/errors" >&2
    die "$environment: capsnmt-$1 failed"
  }
}

# lacks EXTRA COMMAND ARGUMENTS... : the command must name the extra in its last line, and end with 2
lacks() {
  local status=0
  "$bin/python" "$bin/capsnmt-$2" "${@:3}" >/dev/null 2>"$work/errors" || status=$?
  if [ "$status" != 2 ] || grep -q Traceback "$work/errors" ||
    ! tail -n 1 "$work/errors" | grep -q "^error: .* is not installed: pip install 'capsnmt\[$1\]'$"; then
    cat "$work/errors" >&2
    die "$environment: capsnmt-$2 ended with $status and did not name the extra $1"
  fi
}

cd "$work/empty"
export OMP_NUM_THREADS=1
run=$demo/baseline/seed-1
head -n 20 "$demo/data/raw/test.de" >reference
head -n 20 "$demo/data/raw/test.en" >source
evaluation=(evaluate a=reference --reference reference --input plain)
plan=(run --dataset multi30k --dry-run)

"$PYTHON" -m venv --without-pip "$work/none"
with core none ""
"$bin/python" -c 'import capsnmt, sys; sys.exit(not capsnmt.__file__.startswith(sys.prefix))' ||
  die "the installed wheel is not what Python imports"
for command in prepare run evaluate translate report analyse average export; do
  capsnmt "$command" --help >/dev/null
done
capsnmt average "$run/checkpoints" --last-updates 2 --output average.pt
lacks evaluation "${evaluation[@]}"
lacks fairseq "${plan[@]}"
lacks fairseq run --dataset logical_inference --dry-run
lacks fairseq translate "$run"
lacks fairseq export "$run" --output exported.pt
lacks fairseq analyse "$run" --output analysis
lacks report report "$run" --output page
lacks data prepare multi30k --output prepared
for module in senteval build logical_inference; do # what makes sentences needs no extra
  "$bin/python" -m "capsnmt.sentences.$module" --help >/dev/null
done

with data core "[data]"
lacks fairseq prepare multi30k --output prepared
with report core "[report]"
capsnmt report "$demo" --output page
capsnmt "${evaluation[@]}"
with evaluation core "[evaluation]"
capsnmt "${evaluation[@]}"
lacks report report "$run" --output page
with fairseq core "[fairseq]"
capsnmt "${plan[@]}"
capsnmt run --dataset logical_inference --dry-run
capsnmt export "$run" --output exported.pt
lacks data translate "$run"
lacks report analyse "$run" --output analysis
lacks evaluation "${evaluation[@]}"

# what README does after a training by hand
with README fairseq "[fairseq,evaluation]"
common=(--user-dir capsnmt --cpu)
"$bin/python" "$bin/fairseq-train" "$demo/data/bin" "${common[@]}" --arch transformer_em_routing_tiny \
  --optimizer adam --lr 0.001 --share-all-embeddings --train-subset valid --max-tokens 2000 \
  --max-epoch 1 --disable-validation --save-dir trained >log 2>&1 || die "fairseq-train failed: $(tail -n 3 log)"
capsnmt average trained --last-epochs 1 --output trained/averaged.pt
"$bin/python" "$bin/fairseq-generate" "$demo/data/bin" "${common[@]}" --path trained/averaged.pt \
  --max-len-a 0 --max-len-b 5 >generated 2>log || die "fairseq-generate failed: $(tail -n 3 log)"
capsnmt evaluate "em=generated" --baseline "base=$run/generate-test.txt" \
  --reference "$demo/data/raw/test.de" --remove-bpe subword_nmt --detokenize moses --target-lang de \
  --samples 20
capsnmt "${plan[@]}"

# the main job; a configuration of the user adds to those in the wheel
with all README "[fairseq,demo]"
export PATH=$bin:$PATH
echo "Two dogs are running through the grass." | capsnmt translate multi30k_lowercase/em_routing >translated
grep -qx "zwei hunde laufen durch das gras." translated || die "a model by its name: $(cat translated)"
mkdir -p configs/demo
echo 'extends: demo/em_routing' >configs/demo/mine.yaml
for language in en de; do
  head -n 2000 "$demo/text/train.$language" >"train.$language"
  head -n 20 "$demo/text/test.$language" >"test.$language"
done
capsnmt prepare --train train.{en,de} --valid test.{en,de} --test test.{en,de} --vocabulary 1000 --output prepared
capsnmt run --config demo/mine --cpu --threads 1 --max-update 2 --output runs --prepared prepared \
  --set train.save-interval-updates=1 --set train.log-interval=1 \
  --set average.last-updates=2 --set generate.max-len-a=0 --set generate.max-len-b=5
capsnmt translate runs/mine/seed-1 <source >translated
test "$(wc -l <translated)" = 20
capsnmt analyse runs --output page/analysis --sentences 20 --only attention,agreement
capsnmt report runs --output page
grep -q '^| mine' page/report.md
echo "== the wheel works with every extra alone, and with all"

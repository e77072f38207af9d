#!/usr/bin/env bash
# What takes too long for every commit: the quick demo, the long tests on the main host, all tests on the stock host,
# the tests on Python 3.12, 3.13 and 3.14, with the newest torch and Triton, preemption by SLURM, the sweep of bad
# inputs, and faults in the middle of launches. More than two hours on two cores.
#   scripts/nightly.sh
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
[ $# = 0 ] || die "$1 is unknown; there are no flags"

# newest : the operators, modules and models, and a rehearsal of every system on a GPU that is not there, with the
# newest torch, which is built for CUDA, and Triton, on the newest Python
newest() {
  local python environment
  python=$(find_python 3.14 3.13 3.12 3.11)
  environment=$(mktemp -d)
  "$python" -m venv --without-pip "$environment"
  grep -v -E '^(torch|torchaudio|triton)==' constraints.txt >"$environment/constraints.txt"
  # whatever pip is told of torch
  UV_CONSTRAINT="" install_project "$environment/bin/python" fairseq,demo,dev -c "$environment/constraints.txt"
  "$environment/bin/python" -c 'import sys, torch, triton
print("== Python", sys.version.split()[0], "torch", torch.__version__, "Triton", triton.__version__)
assert torch.backends.cuda.is_built(), "torch is not built for CUDA"'
  OMP_NUM_THREADS=1 "$environment/bin/python" -m pytest -p no:cacheprovider -n 2 --dist worksteal --doctest-modules \
    -m 'not nightly' capsnmt/routing capsnmt/modules tests/routing tests/modules tests/models tests/fast tests/criterions
  rm -rf "$environment"
}

# quick : the quick demo, whose systems learn to reverse words
quick() {
  local output row loss
  output=$(mktemp -d)
  bash scripts/demo.sh --quick --output "$output"
  for row in baseline em_routing; do
    loss=$(grep -o '"valid_loss": "[^"]*' "$output/$row/seed-1/train.log" | tail -n 1)
    [[ $loss == *'"0.0'[01234]* ]] || die "the quick demo ends with $loss: $row"
  done
  rm -rf "$output"
}

use_venv main
quick
bash scripts/test.sh -m nightly
bash scripts/without_fast.sh -m nightly
if has_host stock; then bash scripts/test.sh --host stock -m ''; fi
for version in 3.12 3.13 3.14; do
  if has_host "main-$version"; then
    bash scripts/test.sh --host "main-$version"
  else
    echo "!! NOT TESTED on Python $version: there is none on this machine" >&2
  fi
done
newest
bash scripts/slurm_test.sh
bash scripts/fuzz.sh
bash scripts/kill_test.sh

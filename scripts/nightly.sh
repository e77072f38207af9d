#!/usr/bin/env bash
# What takes too long for every commit: the long tests on the main host, all tests on the stock host, the
# tests on Python 3.12, the operators on 3.13, a rehearsal with a torch for CUDA, preemption by SLURM, the sweep
# of bad inputs, and faults in the middle of launches. More than two hours on two cores.
#   scripts/nightly.sh
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
[ $# = 0 ] || die "$1 is unknown; there are no flags"

# torch_alone : the examples of operators and modules on a Python that has no host, if there is one
torch_alone() {
  local python environment
  python=$(find_python 3.14 3.13) || return 0
  environment=$(mktemp -d)
  "$python" -m venv --without-pip "$environment"
  install --python "$environment/bin/python" -c constraints.txt torch msgspec PyYAML pytest
  OMP_NUM_THREADS=1 "$environment/bin/python" -m pytest --noconftest -p no:cacheprovider --doctest-modules \
    capsnmt/cpu capsnmt/routing capsnmt/modules
  rm -rf "$environment"
}

# cuda_rehearsal : every system on a GPU that is not there, with a build of torch for CUDA
cuda_rehearsal() {
  local environment
  environment=$(mktemp -d)
  "$PYTHON" -m venv --without-pip "$environment"
  grep -v -E '^(torch|triton)==' constraints.txt >"$environment/constraints.txt"
  install --python "$environment/bin/python" -c "$environment/constraints.txt" \
    'torch==2.14.1' ve-fairseq msgspec PyYAML pytest
  "$environment/bin/python" -c 'import torch; assert torch.backends.cuda.is_built(), "torch is not built for CUDA"'
  OMP_NUM_THREADS=1 "$environment/bin/python" -m pytest -p no:cacheprovider tests/models/test_cuda_rehearsal.py
  rm -rf "$environment"
}

use_venv main
bash scripts/test.sh -m nightly
if has_host stock; then bash scripts/test.sh --host stock -m ''; fi
if has_host main-3.12; then bash scripts/test.sh --host main-3.12; fi
torch_alone
cuda_rehearsal
bash scripts/slurm_test.sh
bash scripts/fuzz.sh
bash scripts/kill_test.sh

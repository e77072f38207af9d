#!/usr/bin/env bash
# The operators, modules and models in plain torch, without capsnmt/fast: the same properties and recorded numbers.
#   scripts/without_fast.sh [PYTEST ARGUMENTS...]
# Without -m, tests marked nightly are left out.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
use_venv main
CAPSNMT_FAST=0 OMP_NUM_THREADS=1 "$PYTHON" -m pytest -q -n 2 -m 'not nightly' tests/routing tests/modules \
  tests/models/test_properties.py tests/frozen/test_frozen.py -k 'not frozen or systems' "$@"

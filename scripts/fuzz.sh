#!/usr/bin/env bash
# A sweep of bad inputs over all commands: none may end with a traceback, hang, or leave half a file.
#   scripts/fuzz.sh [--cases N] [--seed S] [--commands A,B] [--case K]
# Default: 1000 cases of seed 1. A failing case prints the numbers that repeat it. As root, a read-only
# file system is a real mount, which ends with the sweep.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
use_venv main
OMP_NUM_THREADS=1 exec "$PYTHON" -m tests.fuzz "$@"

#!/usr/bin/env bash
# Faults in the middle of a launch: kill -9 or a full disk at a random moment of every stage. The same
# command must then end with the results of an uninterrupted launch.
#   scripts/kill_test.sh [--rounds N] [--seed S] [--kinds kill,full-disk]
# Default: 17 rounds of 6 stages, some 100 faults; half an hour on two cores. Continuous integration
# runs one round of kills. A failing round prints the numbers that repeat it.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
use_venv main
OMP_NUM_THREADS=1 exec "$PYTHON" -m tests.kills "$@"

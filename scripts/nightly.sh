#!/usr/bin/env bash
# What takes too long for every commit: the long tests on the main host, all tests on the stock host, the
# tests on Python 3.12, preemption by SLURM, the sweep of bad inputs, and faults in the middle of launches.
# More than two hours on two cores.
#   scripts/nightly.sh
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"
[ $# = 0 ] || die "$1 is unknown: there are no flags"

bash scripts/test.sh -m nightly
if has_host stock; then bash scripts/test.sh --host stock -m ''; fi
if has_host main-3.12; then bash scripts/test.sh --host main-3.12; fi
bash scripts/slurm_test.sh
bash scripts/fuzz.sh
bash scripts/kill_test.sh

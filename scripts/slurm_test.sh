#!/usr/bin/env bash
# Runs tests/slurm on a real SLURM of two nodes on this machine; installs Debian's packages for it.
#   scripts/slurm_test.sh [PYTEST ARGUMENTS...]
# Without root, apt-get or the packages it prints "NOT TESTED" and succeeds.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh
helps "$self" "$@"

skip() {
  echo "!! NOT TESTED on SLURM: $*" >&2
  exit 0
}

[ "$(id -u)" = 0 ] || skip "slurmctld, slurmd and munged need root here"
if ! { command -v slurmctld && command -v slurmd && command -v munged; } >/dev/null; then
  command -v apt-get >/dev/null || skip "no slurmctld, slurmd and munged, and no apt-get to install them"
  export DEBIAN_FRONTEND=noninteractive
  # the services of the packages are for a machine of its own: a test starts its own processes
  install=(apt-get install --yes --no-install-recommends slurm-wlm munge)
  "${install[@]}" >/dev/null 2>&1 || { apt-get update >/dev/null 2>&1 && "${install[@]}" >/dev/null 2>&1; } ||
    skip "apt-get cannot install slurm-wlm and munge"
fi

use_venv main
echo "== run_wmt14.sh --slurm on $(slurmctld -V), two nodes on this machine"
# Its own folder, because it opens that to munged's user and any other pytest would close it again.
base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
# A job that is killed leaves its temporary files.
TMPDIR=$base OMP_NUM_THREADS=1 "$PYTHON" -m pytest tests/slurm/check_slurm.py --basetemp "$base/pytest" "$@"

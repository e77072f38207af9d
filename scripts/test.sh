#!/usr/bin/env bash
# The full check: ruff, mypy, shellcheck, shfmt, doctests, tests. Creates its environment.
#   scripts/test.sh [--host main|main-3.N|stock] [PYTEST ARGUMENTS...]
# Without --host it is main, or stock on a machine that has Python 3.9 or 3.10 alone.
# Paths among the arguments are the tests that run (default: all, and the doctests).
# Without -m, tests marked nightly are left out (scripts/nightly.sh runs them). main-3.N, with Python 3.N, and stock
# also leave out tests marked one_host, and the linters.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/venv.sh
. scripts/venv.sh

helps "$self" "$@"
host=""
if [ "${1:-}" = --host ]; then
  [ $# -ge 2 ] || die "--host needs a value; give main, main-3.N or stock"
  host=$2
  shift 2
fi

places=(capsnmt tests)
for word in "$@"; do
  [ ! -e "${word%%::*}" ] || places=()
done

host=${host:-$(default_host)}
use_venv "$host"
chosen=(-m 'not nightly')
[ "$host" = main ] || chosen=(-m 'not nightly and not one_host')
bin=$(dirname "$PYTHON")
shell_files=(.ci/run {data_prep,scripts,tests/*}/*.sh)

# check_types_and_shell : what takes longer than ruff and one core
check_types_and_shell() {
  echo "== mypy"
  "$PYTHON" -m mypy
  echo "== shellcheck, shfmt"
  "$bin/shellcheck" -x "${shell_files[@]}"
  "$bin/shfmt" -i 2 -ci -d "${shell_files[@]}"
}

# The tests write programs, which a temporary folder may not let run (noexec).
program=$(mktemp)
chmod +x "$program"
"$program" 2>/dev/null || { TMPDIR=${bin%/*}/tmp && export TMPDIR && mkdir -p "$TMPDIR"; }
rm -f "$program"

checks=""
if [ "$host" = main ]; then # the linters say the same on both
  echo "== ruff"
  "$bin/ruff" check .
  "$bin/ruff" format --check .
  found=$(mktemp)
  trap 'rm -f "$found"' EXIT
  (check_types_and_shell) >"$found" 2>&1 &
  checks=$!
fi
echo "== doctests and tests on the $host host"
# One thread a process. One process more than there are cores: the tests often wait for commands.
workers=$(($("$PYTHON" -m capsnmt.machine) + 1))
status=0
OMP_NUM_THREADS=1 "$PYTHON" -m pytest --doctest-modules -n "$workers" --dist worksteal \
  "${places[@]}" "${chosen[@]}" "$@" || status=$?
if [ "$checks" ]; then
  wait "$checks" || status=1
  cat "$found"
fi
exit "$status"

# shellcheck shell=bash
# Sourced by the other scripts: finds a Python for a host and keeps a virtual environment whole.
#   use_venv main   -> .venv        Python 3.11 or 3.12, ve-fairseq, the torch of constraints.txt
#   use_venv stock  -> .venv-stock  Python 3.9 or 3.10, fairseq 0.12.2, constraints-stock.txt
# Both set PYTHON to the environment's interpreter.

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# find_python VERSION... : the first interpreter on PATH (or of pyenv) with one of the versions
find_python() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python; do
      if command -v "$candidate" >/dev/null 2>&1 &&
        [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ] &&
        "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
        command -v "$candidate"
        return 0
      fi
    done
  done
  return 1
}

# has_host stock : whether this machine has an interpreter for the host
has_host() {
  case $1 in
    main) find_python 3.11 3.12 >/dev/null ;;
    stock) find_python 3.10 3.9 >/dev/null ;;
    *) die "host '$1' is unknown: choose main or stock" ;;
  esac
}

use_venv() {
  local host=$1 versions constraints venv python stamp
  case $host in
    main) versions="3.11 3.12" constraints=$REPO/constraints.txt venv=$REPO/.venv ;;
    stock) versions="3.10 3.9" constraints=$REPO/constraints-stock.txt venv=$REPO/.venv-stock ;;
    *) die "host '$host' is unknown: choose main or stock" ;;
  esac
  PYTHON=$venv/bin/python
  stamp=$(cat "$REPO/setup.py" "$constraints" | cksum)
  if [ -x "$PYTHON" ] && [ "$(cat "$venv/installed" 2>/dev/null)" = "$stamp" ]; then
    return 0
  fi
  # shellcheck disable=SC2086  # a list of versions
  python=$(find_python $versions) ||
    die "host $host needs Python ${versions// / or } with venv: none found on PATH; install one (on Debian also python3-venv)"
  echo "== installing into ${venv#"$REPO"/} ($("$python" --version), once; later starts skip this)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  if [ "$host" = stock ]; then
    # omegaconf 2.0.6, which fairseq 0.12.2 needs, has metadata that newer pips refuse
    "$PYTHON" -m pip install --quiet --disable-pip-version-check 'pip<24.1'
  fi
  if ! "$PYTHON" -m pip install --disable-pip-version-check --progress-bar off -c "$constraints" \
    -e "${REPO}[fairseq,demo,dev]" 2>&1 | tee "$venv/pip.log" |
    sed -u -n -E 's/^(Collecting|Building|Installing)/   \1/p'; then
    grep -A 9 -E '^(ERROR|error|The conflict)' "$venv/pip.log" >&2 || tail -n 20 "$venv/pip.log" >&2
    die "pip could not install (all it said: $venv/pip.log); the same command starts again"
  fi
  echo "$stamp" >"$venv/installed"
}

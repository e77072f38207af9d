# shellcheck shell=bash
# Sourced by the scripts that run the project from any folder: sets root, PYTHONPATH, and PYTHON,
# the interpreter: the one that PYTHON names already, else that of .venv, else python3. Ends with an error
# if its version is not supported, or it lacks what every command needs.

root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..") # no cd: see venv.sh
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$root/.venv/bin/python
  [ -x "$PYTHON" ] || PYTHON=python3
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
unfit=$("$PYTHON" -c 'import sys
if not (3, 9) <= sys.version_info < (3, 15):
    print("is not Python 3.9 to 3.14")
    sys.exit(3)
from importlib.util import find_spec
lacking = [name for name in ("msgspec", "torch", "yaml") if not find_spec(name)]
print("has no " + ", ".join(lacking))
sys.exit(3 if lacking else 0)' 2>/dev/null) ||
  [ $? != 3 ] || {
  echo "error: PYTHON=$PYTHON $unfit; name another, or let scripts/demo.sh make .venv" >&2
  exit 1
}

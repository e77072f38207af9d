# shellcheck shell=bash
# Sourced by the scripts that run the project from any folder: sets root, PYTHONPATH, and PYTHON,
# the interpreter: the one that PYTHON names already, else that of .venv, else python3. Ends with an error
# if its version is not supported.

root=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..") # no cd: see venv.sh
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$root/.venv/bin/python
  [ -x "$PYTHON" ] || PYTHON=python3
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
"$PYTHON" -c 'import sys; sys.exit(0 if (3, 9) <= sys.version_info < (3, 15) else 3)' 2>/dev/null ||
  [ $? != 3 ] || {
  echo "error: PYTHON=$PYTHON is not Python 3.9 to 3.14; name one, or let scripts/demo.sh make .venv" >&2
  exit 1
}

# shellcheck shell=bash
# Sourced by the scripts that run the project from any folder: sets root, PYTHONPATH, and PYTHON,
# the interpreter: the one that PYTHON names already, else that of .venv, else python3.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$root/.venv/bin/python
  [ -x "$PYTHON" ] || PYTHON=python3
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

#!/usr/bin/env bash
# One experiment from the raw corpus to its scores; --help lists the flags.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m capsnmt.experiment "$@"

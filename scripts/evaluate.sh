#!/usr/bin/env bash
# Scores, significance and BLEU by length of fairseq-generate's output; --help lists the flags:
#   scripts/evaluate.sh NAME=FILE[,FILE...]... [--baseline NAME=FILE] [--reference FILE] [--json FILE]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$root/.venv/bin/python
[ -x "$python" ] || python=python3
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec "$python" -m capsnmt.evaluation "$@"

#!/usr/bin/env bash
# Scores, significance and BLEU by length of fairseq-generate's output; --help lists the flags:
#   scripts/evaluate.sh NAME=FILE[,FILE...]... [--baseline NAME=FILE] [--reference FILE] [--json FILE]
set -euo pipefail
# shellcheck source=scripts/python.sh
. "$(dirname "${BASH_SOURCE[0]}")/python.sh"
exec "$PYTHON" -m capsnmt.evaluation "$@"

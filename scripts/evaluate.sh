#!/usr/bin/env bash
# Score the output of fairseq-generate: BLEU, chrF, chrF++, TER, significance, BLEU by length.
#   scripts/evaluate.sh NAME=FILE[,FILE...]... --reference FILE [--baseline NAME=FILE] [--json FILE]
# --help lists all flags.
set -euo pipefail
# shellcheck source=scripts/python.sh
. "$(dirname "$(readlink -f "$0")")/python.sh"
exec "$PYTHON" -m capsnmt.evaluation "$@"

#!/usr/bin/env bash
# IWSLT15 English-Vietnamese; the flags are those of capsnmt-run (--help lists them)
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset iwslt15_en_vi "$@"

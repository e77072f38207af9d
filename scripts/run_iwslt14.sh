#!/usr/bin/env bash
# IWSLT14 Spanish-English; the flags are those of capsnmt-run (--help lists them)
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset iwslt14_es_en "$@"

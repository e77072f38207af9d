#!/usr/bin/env bash
# Multi30k English-German; the flags are those of run_experiment.sh:
#   [--config ROW | --arch ARCH] [--data DIR] [--gpus N | --cpu] [--seed S | --seeds 1,2,3]
#   [--output DIR] [--max-update N] [--baseline ROW] [--dry-run]
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run_experiment.sh" --dataset multi30k "$@"

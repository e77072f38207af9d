#!/usr/bin/env bash
# WMT14 English-German; the flags are those of capsnmt-run (--help lists them):
#   [--config ROW | --rows ROW,ROW|all | --arch ARCH] [--seeds 1,2,3] [--baseline ROW] [--data DIR]
#   [--output DIR] [--gpus N | --cpu [N]] [--nodes M] [--slurm [PARTITION]] [--dry-run]
set -euo pipefail
exec "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset wmt14_en_de "$@"

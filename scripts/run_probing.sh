#!/usr/bin/env bash
# Probing (Li et al. 2021, Table 7); the flags are those of capsnmt-run (--help lists them):
#   [--dataset probing_li2021|probing_li2019|probing_multi30k] [--rows ROW,ROW|all] [--tasks TASK,TASK]
#   [--seeds 1,2,3] [--data DIR] [--output DIR] [--gpus N | --cpu [N]] [--slurm [PARTITION]] [--dry-run]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset probing_li2021 "$@"

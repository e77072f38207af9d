#!/usr/bin/env bash
# Logical inference (Li et al. 2021, Figure 4); the flags are those of capsnmt-run (--help lists them):
#   [--dataset logical_inference|logical_inference_cpu] [--rows ROW,ROW|all] [--seeds 1,2,3] [--data DIR]
#   [--output DIR] [--gpus N | --cpu [N]] [--slurm [PARTITION]] [--dry-run]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset logical_inference "$@"

#!/usr/bin/env bash
#SBATCH --job-name=tiny-1
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --output=@HERE@/launched/runs/tiny/seed-1/slurm-%j.log
#SBATCH --chdir=@HERE@
set -euo pipefail
export PYTHONPATH=@ROOT@
export OMP_NUM_THREADS=1
export OMP_WAIT_POLICY=PASSIVE
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
exec @PYTHON@ -m capsnmt.experiment --config @HERE@/launched/tiny.yaml --prepared @HERE@/prepared-iwslt15_en_vi/data --cpu --threads 1 --output @HERE@/launched/runs --max-update 8 --seed 1 --requeue

#!/usr/bin/env bash
# The suite of made-up tasks (docs/composition.md): SCAN, copying and reversing, minutes on one core for each
# training; then the table of whole sequences that are right.
#   scripts/run_composition.sh [--tasks T,T] [--rows R,R] [--seeds S,S] [--max-update N] [--output DIR]
#                              [--jobs N] [--keep FILE] [--dry-run]
# --tasks       default scan_length,scan_jump,copy,reversal
# --rows        default all of configs/composition; the table compares with baseline
# --seeds       default 1 to 10
# --max-update  updates of each training (default 3000)
# --output      the folder for everything (default runs/composition)
# --jobs        trainings at the same time, of one thread each (default: one per core)
# --keep        add the outcomes to this file, as results/composition.tsv; the table is of all in it
# --dry-run     print the commands and run nothing
# Complete runs are skipped and trainings resume: repeat the same command to continue.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"

tasks=scan_length,scan_jump,copy,reversal rows=all seeds=1,2,3,4,5,6,7,8,9,10
max_update="" output=runs/composition jobs="" keep="" dry_run=""
parse "--tasks= --rows= --seeds= --max-update= --output= --jobs= --keep= --dry-run" "$@"
jobs=${jobs:-$("$PYTHON" -m capsnmt.machine)}
number --jobs
settings=(--dataset composition --rows "$rows" --seeds "$seeds" --cpu --threads 1 --jobs "$jobs")
if [ "$max_update" ]; then
  number --max-update 10
  settings+=(--max-update "$max_update" --set "train.total-num-update=$max_update")
  settings+=(--set "train.warmup-updates=$((max_update / 10))")
fi
for task in ${tasks//,/ }; do
  text=$output/$task/text data=$output/$task/data given=()
  show "$PYTHON" "$root/data_prep/composition.py" --task "$task" --output "$text"
  for split in train valid test; do
    given+=("--$split" "$text/$split."{src,tgt})
  done
  show "$PYTHON" -m capsnmt.corpora "${given[@]}" --output "$data"
  show "$PYTHON" -m capsnmt.launch "${settings[@]}" --prepared "$data" --output "$output/$task"
done
show "$PYTHON" -m scripts.composition "$output" ${keep:+--keep "$keep"}

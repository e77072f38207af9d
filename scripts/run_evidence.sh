#!/usr/bin/env bash
# The evidence of docs/results.md and docs/results_archive.md: all rows of a data set, then reported. Those of
# Multi30k are tested against the baseline with the same seed, and analysed.
#   scripts/run_evidence.sh [--dataset multi30k|logical_inference] [--recipe published] [--gpu]
#                           [--seeds S,S,...] [--max-update N] [--data DIR] [--output DIR] [--jobs N]
#                           [--threads N] [--dry-run]
# --dataset     default multi30k
# --recipe      published: lower-cased Multi30k as Wu et al. (2021) trained on it, to the end, three seeds
#               of a row after the other; each finished run leaves its log, curve, translations and scores
#               in results/
# --gpu         the full recipe, 8,000 updates or 100 epochs, on one GPU; three seeds of every row
#               (default: the CPU, one thread for each training. Multi30k: 2,000 updates of 1,024 tokens,
#               three seeds of baseline, head routing, disagreement and both, one seed of the other rows.
#               Logical inference: 4,000 updates of 32 pairs, about one epoch, three seeds of every row)
# --seeds       the seeds of the rows that have three
# --max-update  updates of each training
# --data        the folder of the raw data, if you have it
# --output      the folder for everything (default runs/evidence, with _published, _logical_inference
#               and _gpu for these)
# --jobs        trainings at the same time (default: one per core, with --gpu 8)
# --threads     threads of a training on the CPU (default 1)
# --dry-run     print the commands and run nothing
# Complete runs are skipped and trainings resume: repeat the same command to continue. A signal to stop, as of timeout
# 3600 before the command, leaves a checkpoint of every training; python -m scripts.results OUTPUT says how far they are.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"

dataset=multi30k recipe="" gpu="" seeds=1,2,3 max_update="" data="" output="" jobs="" threads=1 dry_run=""
parse "--dataset= --recipe= --gpu --seeds= --max-update= --data= --output= --jobs= --threads= --dry-run" "$@"
[[ $seeds =~ ^[[:digit:]]+(,[[:digit:]]+)*$ ]] || die "--seeds is $seeds; give whole numbers separated by commas"
[ -z "$data" ] || [ -d "$data" ] || die "--data $data is no folder; check the path"
for flag in ${jobs:+jobs} threads ${max_update:+max-update}; do
  number "--$flag"
done

case $dataset:$recipe in
  multi30k:published)
    dataset=multi30k_lowercase title="Multi30k, published recipe" folder=runs/evidence_published updates=""
    several=(
      em_routing em_routing_uniform em_routing_random baseline_prenorm
      shazeer2020_talking pagliardini2024_dense mlmha em_routing_output_disagreement capsule
      baseline_continued dlcl_routing_from_baseline baseline_wider
      tsai2020_inverted chen2026_attention_residuals
      xiao2024_composed liu2021_surface_fusion
      output_disagreement yun2021_orthogonality yun2021_hsic zhou2020_drop_head
    )
    others=() smaller=()
    ;;
  multi30k:)
    title=Multi30k folder=runs/evidence updates=2000
    # Baseline, head routing, disagreement and both: the tables of Li et al. 2021.
    several=(em_routing output_disagreement em_routing_output_disagreement)
    others=(
      dlcl_routing mlmha capsule                    # the other presets
      output_disagreement_from_baseline             # disagreement that starts later
      baseline_continued dlcl_routing_from_baseline # as Dou et al. 2019 trained, and its control
      depth_attention wang2019_dlcl pagliardini2024_dense qiu2025_gated shazeer2020_talking
      tsai2020_inverted tsai2020_inverted_layers chen2026_attention_residuals
    )
    # D: a quarter of the recipe's tokens makes four times the updates of the same time, at a learning
    # rate that suits them.
    smaller=(--set batch.tokens-per-update=1024 --set batch.max-tokens=1024 --set train.lr=0.003)
    ;;
  logical_inference:)
    title="Logical inference" folder=runs/evidence_logical_inference updates=4000
    several=(disagreement aggregation both)
    others=()
    # D: so short a training underfits and needs many small updates. After 6,000, seed 1 of the baseline
    # was at 76% of the validation pairs with learning rate 0.0003, at 56%, its plateau, with 0.001.
    smaller=(
      --set batch.sentences-per-update=32 --set batch.max-sentences=32 --set train.lr=0.0003
      --set train.lr-scheduler=inverse_sqrt --set train.warmup-updates=300 --set train.clip-norm=1.0
      --set train.encoder-normalize-before=true --set train.dropout=0
      --set train.optimizer=fused_adam # the same numbers
    )
    ;;
  *:published) die "--recipe published is of multi30k; leave out --dataset $dataset" ;;
  *:) die "--dataset is $dataset; choose multi30k or logical_inference" ;;
  *) die "--recipe is $recipe; choose published, or leave it out" ;;
esac

if [ "$gpu" ]; then
  several+=("${others[@]}") others=()
  output=${output:-${folder}_gpu} jobs=${jobs:-8}
  [ "$dataset" != multi30k ] || max_update=${max_update:-8000}
  settings=(--gpus 1)
else
  max_update=${max_update:-$updates} output=${output:-$folder} jobs=${jobs:-$("$PYTHON" -m capsnmt.machine)}
  settings=(--cpu --threads "$threads" --set precision=auto "${smaller[@]}")
fi
settings+=(--output "$output" --jobs "$jobs" ${data:+--data "$data"})
[ -z "$max_update" ] || settings+=(--max-update "$max_update")
[ "$dataset" = logical_inference ] || settings+=(--baseline baseline)
late=()
if [ "$dataset" = multi30k ]; then
  # the recipe's warm-up takes a quarter of its updates, and late disagreement starts after it
  settings+=(--set "train.warmup-updates=$((max_update < 4 ? 1 : max_update / 4))")
  late=(
    --set "train.disagreement-start-update=$((max_update / 4))"
    --set "train.disagreement-ramp-updates=$((max_update / 8))"
  )
fi

# launch ROW,ROW SEED,SEED FLAG... : trains and evaluates rows, as many at a time as --jobs says
launch() {
  show "$PYTHON" -m capsnmt.launch --dataset "$dataset" --rows "$1" --seeds "$2" "${settings[@]}" "${@:3}"
}

# all ROW... : the rows, separated by commas
all() {
  local IFS=,
  echo "$*"
}

first=$((10#${seeds%%,*}))
if [ "$recipe" ]; then # a machine that is lost costs one row
  for row in baseline "${several[@]}"; do
    launch "$row" "$seeds"
    # fewer updates are a rehearsal
    [ "$max_update" ] || show "$PYTHON" -m scripts.results "$output" --keep "$root/results"
  done
else
  launch "$(all baseline "${several[@]}")" "$seeds"
  [ ${#others[@]} = 0 ] || launch "$(all "${others[@]}")" "$first"
  [ ${#late[@]} = 0 ] || launch output_disagreement_late "$([ "$gpu" ] && echo "$seeds" || echo "$first")" "${late[@]}"
fi

rows=() firsts=()
for row in baseline "${several[@]}" "${others[@]}" ${late:+output_disagreement_late}; do
  rows+=("$output/$row") firsts+=("$output/$row/seed-$first")
done
if [ "$dataset" != logical_inference ]; then
  show "$PYTHON" -m capsnmt.analysis "${firsts[@]}" --output "$output/analysis"
fi
show "$PYTHON" -m capsnmt.report "${rows[@]}" --output "$output" --title "Evidence: $title"
[ "$dry_run" ] || echo "== done: read $output/report.html"

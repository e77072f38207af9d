#!/usr/bin/env bash
# The evidence of docs/results.md: all rows of a data set with the same updates, then reported. Those of
# Multi30k are tested against the baseline with the same seed, and analysed.
#   scripts/run_evidence.sh [--dataset multi30k|logical_inference] [--recipe published] [--gpu]
#                           [--seeds S,S,...] [--max-update N] [--data DIR] [--output DIR] [--jobs N]
#                           [--threads N] [--minutes N] [--list] [--dry-run]
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
# --minutes     stop after N minutes, with a checkpoint of every training
# --list        say how far every training is, and start none
# --dry-run     print the commands and run nothing
# Complete runs are skipped and trainings resume: repeat the same command to continue.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"

dataset=multi30k recipe="" gpu="" seeds=1,2,3 max_update="" data="" output="" jobs="" threads=1 minutes=""
list="" dry_run=""
while [ $# -gt 0 ]; do
  case $1 in
    --gpu | --list | --dry-run)
      printf -v "$(tr - _ <<<"${1#--}")" yes
      shift
      continue
      ;;
    --dataset | --recipe | --seeds | --max-update | --data | --output | --jobs | --threads | --minutes)
      [ $# -ge 2 ] || die "$1 needs a value (see --help)"
      ;;
    *) die "unknown flag '$1': choose from --dataset --recipe --gpu --seeds --max-update --data --output --jobs --threads --minutes --list --dry-run" ;;
  esac
  printf -v "$(tr - _ <<<"${1#--}")" %s "$2"
  shift 2
done
[[ $seeds =~ ^[0-9]+(,[0-9]+)*$ ]] || die "--seeds $seeds: give whole numbers separated by commas"
[ -z "$(tr , '\n' <<<"$seeds" | sort | uniq -d)" ] || die "--seeds $seeds: gives a seed twice: give each once"
[ -z "$data" ] || [ -d "$data" ] || die "--data $data: is no folder"

case $recipe in
  "") ;;
  published)
    [ "$dataset" = multi30k ] || die "--recipe published: is of multi30k: leave out --dataset $dataset"
    dataset=multi30k_lowercase
    ;;
  *) die "--recipe $recipe: choose published, or leave it out" ;;
esac

case $dataset in
  multi30k_lowercase)
    title="Multi30k, published recipe" folder=runs/evidence_published updates=""
    several=(
      em_routing shazeer2020_talking pagliardini2024_dense mlmha
      em_routing_output_disagreement capsule
    )
    others=() smaller=()
    ;;
  multi30k)
    title=Multi30k folder=runs/evidence updates=2000
    # Baseline, head routing, disagreement and both: the tables of Li et al. 2021.
    several=(em_routing output_disagreement em_routing_output_disagreement)
    others=(
      dlcl_routing mlmha capsule                                 # the other presets
      output_disagreement_late output_disagreement_from_baseline # disagreement that starts later
      dlcl_routing_from_baseline baseline_continued              # as Dou et al. 2019 trained, and its control
      depth_attention wang2019_dlcl pagliardini2024_dense qiu2025_gated shazeer2020_talking
    )
    # D: a quarter of the recipe's tokens makes four times the updates of the same time, at a learning
    # rate that suits them.
    smaller=(--set batch.tokens-per-update=1024 --set batch.max-tokens=1024 --set train.lr=0.003)
    ;;
  logical_inference)
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
  *) die "--dataset $dataset: choose multi30k or logical_inference" ;;
esac

if [ "$gpu" ]; then
  several+=("${others[@]}") others=()
  output=${output:-${folder}_gpu} jobs=${jobs:-8}
  [ "$dataset" != multi30k ] || max_update=${max_update:-8000}
  settings=(--gpus 1)
else
  # nproc takes OMP_NUM_THREADS for the number of cores
  max_update=${max_update:-$updates} output=${output:-$folder} jobs=${jobs:-$(env -u OMP_NUM_THREADS nproc)}
  settings=(--cpu --threads "$threads" --set precision=auto "${smaller[@]}")
fi
for flag in jobs threads ${max_update:+max-update} ${minutes:+minutes}; do
  variable=${flag//-/_}
  number "--$flag" "${!variable}"
done
jobs=$((10#$jobs))
settings+=(--output "$output" ${data:+--data "$data"})
if [ "$max_update" ]; then
  max_update=$((10#$max_update))
  settings+=(--max-update "$max_update")
fi
if [ "$dataset" = multi30k ]; then
  # the recipe's warm-up takes a quarter of its updates, and late disagreement starts after it
  settings+=(--set "train.warmup-updates=$((max_update < 4 ? 1 : max_update / 4))")
  late=(
    --set "train.disagreement-start-update=$((max_update / 4))"
    --set "train.disagreement-ramp-updates=$((max_update / 8))"
  )
fi

# run ROW SEED : trains and evaluates a row, or prints the command for --dry-run
run() {
  local command=("$PYTHON" -m capsnmt.launch --config "$dataset/$1" --seed "$2" "${settings[@]}")
  [ "$dataset" = logical_inference ] || [ "$1" = baseline ] || command+=(--baseline baseline)
  [ "$1" != output_disagreement_late ] || command+=("${late[@]}")
  if [ "$dry_run" ]; then
    show "${command[@]}"
    return
  fi
  mkdir -p "$output"
  echo "-- $1, seed $2: see $output/$1-$2.log"
  exec "${command[@]}" >>"$output/$1-$2.log" 2>&1
}

# stop : saves and ends all trainings
stop() {
  trap - TERM INT
  echo "== stopping: repeat the same command to continue"
  # shellcheck disable=SC2046  # a list of processes
  kill $(jobs -p) 2>/dev/null || true
  wait
  exit 1
}
trap stop TERM INT
timer=""
if [ "$minutes" ] && [ -z "$dry_run" ]; then
  (
    exec >/dev/null 2>&1 # a pipe must not wait for it
    trap 'kill $!' TERM
    sleep $((10#$minutes * 60)) &
    wait $! && kill -TERM $$
  ) &
  timer=$!
  # also after a failure: the number of this process may soon be another's
  trap 'kill "$timer" 2>/dev/null || true' EXIT
fi

failed=0
# pool ROW:SEED... : runs them, no more than --jobs at a time
pool() {
  local each running=0
  for each in "$@"; do
    if [ "$dry_run" ]; then
      run "${each%:*}" "${each#*:}"
      continue
    fi
    if ((running == jobs)); then
      one_ended
      running=$((running - 1))
    fi
    run "${each%:*}" "${each#*:}" &
    running=$((running + 1))
  done
  while ((running > 0)); do
    one_ended
    running=$((running - 1))
  done
}

# one_ended : waits for one training; the timer never ends before them
one_ended() {
  wait -n || failed=$((failed + 1))
  [ -z "$recipe" ] || "$PYTHON" -m scripts.results "$output" --keep "$root/results"
}

firsts=() seconds=()
for seed in ${seeds//,/ }; do firsts+=("baseline:$seed"); done
if [ "$recipe" ]; then
  for row in "${several[@]}"; do
    for seed in ${seeds//,/ }; do seconds+=("$row:$seed"); done
  done
else # each seed is a table of its own if the training is stopped
  for seed in ${seeds//,/ }; do
    for row in "${several[@]}"; do seconds+=("$row:$seed"); done
  done
fi
for row in "${others[@]}"; do seconds+=("$row:${seeds%%,*}"); done
if [ "$list" ]; then
  "$PYTHON" -m scripts.results "$output"
  for each in "${firsts[@]}" "${seconds[@]}"; do
    [ -e "$output/${each%:*}/seed-${each#*:}" ] || echo "${each%:*}, seed ${each#*:}: not started"
  done
  exit
fi
if [ "$dataset" != logical_inference ]; then # the other rows are tested against the baseline, and some start from it
  pool "${firsts[@]}"
  [ "$failed" = 0 ] || die "$failed training(s) of the baseline failed: see $output/*.log"
  firsts=()
fi
pool "${firsts[@]}" "${seconds[@]}"
[ "$failed" = 0 ] || die "$failed run(s) failed: see $output/*.log"
[ -z "$timer" ] || kill "$timer" 2>/dev/null || true

rows=("$output/baseline") firsts=()
for row in "${several[@]}" "${others[@]}"; do rows+=("$output/$row"); done
for row in "${rows[@]}"; do firsts+=("$row/seed-${seeds%%,*}"); done
if [ "$dataset" != logical_inference ]; then
  show "$PYTHON" -m capsnmt.analysis "${firsts[@]}" --output "$output/analysis"
fi
show "$PYTHON" -m capsnmt.report "${rows[@]}" --output "$output" --title "Evidence: $title"
[ "$dry_run" ] || echo "== done: read $output/report.html"

#!/usr/bin/env bash
# The evidence of docs/results.md: all rows of Multi30k with the same updates, tested against the
# baseline with the same seed, then analysed and reported.
#   scripts/run_evidence.sh [--gpu] [--seeds S,S,...] [--max-update N] [--data DIR] [--output DIR]
#                           [--jobs N] [--minutes N] [--dry-run]
# --gpu         the full recipe, 8,000 updates, on one GPU; three seeds of every row
#               (default: 2,000 updates of 1,024 tokens on the CPU, one thread for each training; three
#               seeds of baseline, head routing, disagreement and both, one seed of the other rows)
# --seeds       the seeds of the rows that have three
# --max-update  updates of each training
# --data        the folder of the raw data, if you have it
# --output      the folder for everything (default runs/evidence, with --gpu runs/evidence_gpu)
# --jobs        trainings at the same time (default: one per core, with --gpu 8)
# --minutes     stop after N minutes, with a checkpoint of every training
# --dry-run     print the commands and run nothing
# Complete runs are skipped and trainings resume: repeat the same command to continue.
set -euo pipefail
# shellcheck source=scripts/python.sh
. "$(dirname "${BASH_SOURCE[0]}")/python.sh"

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# number FLAG VALUE : ends with an error unless VALUE is an integer of at least 1
number() {
  if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || ((10#$2 < 1)); then
    die "$1 $2: give a whole number, 1 or more"
  fi
}

gpu="" seeds=1,2,3 max_update="" data="" output="" jobs="" minutes="" dry_run=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed -n '2,16p'
      exit 0
      ;;
    --gpu | --dry-run)
      [ "$1" = --gpu ] && gpu=yes || dry_run=yes
      shift
      continue
      ;;
    --seeds | --max-update | --data | --output | --jobs | --minutes)
      [ $# -ge 2 ] || die "$1 needs a value (see --help)"
      ;;
    *) die "unknown flag '$1': choose from --gpu --seeds --max-update --data --output --jobs --minutes --dry-run" ;;
  esac
  case $1 in
    --seeds) seeds=$2 ;;
    --max-update) max_update=$2 ;;
    --data) data=$2 ;;
    --output) output=$2 ;;
    --jobs) jobs=$2 ;;
    --minutes) minutes=$2 ;;
  esac
  shift 2
done
[[ $seeds =~ ^[0-9]+(,[0-9]+)*$ ]] || die "--seeds $seeds: give whole numbers separated by commas"
[ -z "$data" ] || [ -d "$data" ] || die "--data $data: is no folder"

# Baseline, head routing, disagreement and both: the tables of Li et al. 2021.
several=(em_routing output_disagreement em_routing_output_disagreement)
others=(
  dlcl_routing mlmha capsule                                 # the other presets
  output_disagreement_late output_disagreement_from_baseline # disagreement that starts later
  dlcl_routing_from_baseline baseline_continued              # as Dou et al. 2019 trained, and its control
  depth_attention wang2019_dlcl pagliardini2024_dense qiu2025_gated shazeer2020_talking
)
if [ "$gpu" ]; then
  several+=("${others[@]}") others=()
  max_update=${max_update:-8000} output=${output:-runs/evidence_gpu} jobs=${jobs:-8}
  settings=(--gpus 1)
else
  # nproc takes OMP_NUM_THREADS for the number of cores
  max_update=${max_update:-2000} output=${output:-runs/evidence} jobs=${jobs:-$(env -u OMP_NUM_THREADS nproc)}
  # D: a quarter of the recipe's tokens makes four times the updates of the same time, at a learning
  # rate that suits them.
  settings=(
    --cpu --threads 1
    --set precision=auto --set batch.tokens-per-update=1024 --set batch.max-tokens=1024
    --set train.lr=0.003
  )
fi
for flag in max-update jobs ${minutes:+minutes}; do
  variable=${flag//-/_}
  number "--$flag" "${!variable}"
done
max_update=$((10#$max_update)) jobs=$((10#$jobs))
# the recipe's warm-up takes a quarter of its updates, and late disagreement starts after it
settings+=(--max-update "$max_update" --set "train.warmup-updates=$((max_update < 4 ? 1 : max_update / 4))")
settings+=(--output "$output" ${data:+--data "$data"})
late=(
  --set "train.disagreement-start-update=$((max_update / 4))"
  --set "train.disagreement-ramp-updates=$((max_update / 8))"
)

# run ROW SEED : trains and evaluates a row, or prints the command for --dry-run
run() {
  local command=("$PYTHON" -m capsnmt.experiment --config "multi30k/$1" --seed "$2" "${settings[@]}")
  [ "$1" = baseline ] || command+=(--baseline baseline)
  [ "$1" != output_disagreement_late ] || command+=("${late[@]}")
  if [ "$dry_run" ]; then
    printf '%q ' "${command[@]}"
    echo
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
}

firsts=() seconds=()
for seed in ${seeds//,/ }; do firsts+=("baseline:$seed"); done
for row in "${several[@]}"; do
  for seed in ${seeds//,/ }; do seconds+=("$row:$seed"); done
done
for row in "${others[@]}"; do seconds+=("$row:${seeds%%,*}"); done
# the other rows are tested against the baseline, and some start from it
pool "${firsts[@]}"
[ "$failed" = 0 ] || die "$failed training(s) of the baseline failed: see $output/*.log"
pool "${seconds[@]}"
[ "$failed" = 0 ] || die "$failed run(s) failed: see $output/*.log"
[ -z "$timer" ] || kill "$timer" 2>/dev/null || true

rows=("$output/baseline") firsts=()
for row in "${several[@]}" "${others[@]}"; do rows+=("$output/$row"); done
for row in "${rows[@]}"; do firsts+=("$row/seed-${seeds%%,*}"); done
analysis=("$PYTHON" -m capsnmt.analysis "${firsts[@]}" --output "$output/analysis")
report=("$PYTHON" -m capsnmt.report "${rows[@]}" --output "$output" --title "Evidence: Multi30k")
if [ "$dry_run" ]; then
  printf '%q ' "${analysis[@]}"
  printf '\n'
  printf '%q ' "${report[@]}"
  printf '\n'
else
  "${analysis[@]}"
  "${report[@]}"
  echo "== done: read $output/report.html"
fi

#!/usr/bin/env bash
# The demo: from nothing to a report and an analysis of the Transformer and EM head routing.
#   scripts/demo.sh [--pair en-de|es-en|en-vi|zh-en] [--max-update N] [--output DIR] [--seed S] [--dry-run]
#   scripts/demo.sh --quick [--max-update N] [--output DIR] [--seed S] [--dry-run]
# --pair        languages (default en-de); the corpus is built from message catalogues
# --max-update  updates of each system (default 1200)
# --quick       thirty seconds instead: the task is to reverse words, the loss ends near zero, and there
#               is a report, but no analysis
# --output      the folder for everything (default outputs/demo-PAIR, outputs/demo-quick); --seed
#               (default 1)
# --dry-run     print the commands and run nothing
# Complete steps are skipped and training resumes: repeat the same command to continue.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/venv.sh
. "${self%/*}/venv.sh"

# D: a fixed number of updates, and not a time limit: the same flags are the same experiment on every machine,
# up to the rounding of bf16, which only some have, and a second start knows when it is done. Measured: 1,200
# updates of both systems, side by side, in 6 min 30 s on two cores of a shared Intel Xeon (2026-11-23).
averaged=5

helps "$self" "$@"
pair="" max_update="" output="" seed=1 quick="" dry_run=""
parse "--quick --pair= --max-update= --output= --seed= --dry-run" "$@"

[ -z "$quick" ] || [ -z "$pair" ] || die "--quick excludes --pair; leave it out"
name=${pair:-en-de} configs=demo updates=1200
[ -z "$quick" ] || name=quick
case $name in
  quick) title="words in reverse order" pair=src-tgt configs=reversal updates=400 ;;
  en-de) title="English to German" ;;
  es-en) title="Spanish to English" ;;
  en-vi) title="English to Vietnamese" ;;
  zh-en) title="Chinese to English" ;;
  *) die "--pair is $pair; choose en-de, es-en, en-vi or zh-en" ;;
esac
pair=${pair:-$name}
number --seed
max_update=${max_update:-$updates}
# The average needs its checkpoints.
number --max-update "$averaged"
output=${output:-$REPO/outputs/demo-$name}
[ ! -e "$output" ] || [ -d "$output" ] || die "--output $output is a file; give a folder"

if [ "$dry_run" ]; then
  PYTHON=python
else
  use_venv "$(default_host)" fairseq,demo
fi
export PYTHONPATH=$REPO

# Two files of text for each set, prepared as a user's own.
text=$output/text
source=${pair%-*} target=${pair#*-}
prepare=("$PYTHON" -m capsnmt.corpora --train "$text/train."{"$source","$target"} --output "$output/data")
if [ "$quick" ]; then
  show "$PYTHON" "$REPO/data_prep/composition.py" --task demo --output "$text"
else
  show "$PYTHON" "$REPO/data_prep/catalogues.py" --pair "$pair" --output "$text"
  prepare+=(--valid "$text/valid."{"$source","$target"} --test "$text/test."{"$source","$target"}
    --vocabulary 4000)
fi
show "${prepare[@]}"

# D: the CPU even if there is a GPU, so that the demo is the same on every machine. One thread for each
# system, both at the same time: a model of this size gains little from a second thread, and two
# threads wait for each other whenever another process uses a core.
common=(
  --prepared "$output/data" --output "$output" --seed "$seed" --cpu --threads 1
  --max-update "$max_update" --set "data.source-lang=$source" --set "data.target-lang=$target"
  --set "train.save-interval-updates=$((max_update / (max_update < 100 ? averaged : 12)))"
  # the learning curve needs points, also of a short training
  --set "train.log-interval=$((max_update < 100 ? 1 : max_update / 48))"
)
if [ "$quick" ] && [ "$max_update" -gt "$updates" ]; then # its learning rate falls to 0 until then
  common+=(--set "train.total-num-update=$max_update")
fi
baseline=("$PYTHON" -m capsnmt.launch --config "$configs/baseline" "${common[@]}")
em_routing=("$PYTHON" -m capsnmt.launch --config "$configs/em_routing" "${common[@]}")

# start_em_routing : trains it in the background
start_em_routing() {
  if [ "$dry_run" ]; then
    show "${em_routing[@]}" | sed 's/$/\&/'
    return
  fi
  "${em_routing[@]}" >"$output/em_routing.log" 2>&1 &
  trap 'kill '$!' 2>/dev/null; wait' EXIT
  echo "== em_routing trains at the same time: see $output/em_routing.log"
}

if [ "$dry_run" ] || [ ! -e "$output/baseline/seed-$seed/scores.json" ]; then start_em_routing; fi
show "${baseline[@]}"
# If it has failed in the background, the next command resumes it and shows why.
if [ "$dry_run" ]; then echo wait; else wait; fi
trap - EXIT
show "${em_routing[@]}" --baseline baseline
runs=("$output/baseline/seed-$seed" "$output/em_routing/seed-$seed")
# A complete analysis of these models is skipped. It keeps their checksum.
page="$output/analysis/analysis.html"
models=$([ "$quick$dry_run" ] || cat "${runs[@]/%//averaged.pt}" | sha256sum)
if [ -z "$quick" ] && ! { [ -e "$page" ] && [ "$models" = "$(cat "$page.models" 2>&1)" ]; }; then
  show "$PYTHON" -m capsnmt.analysis "${runs[@]}" --subset test --ablation-sentences 20 \
    --device cpu --output "$output/analysis"
  [ "$dry_run" ] || echo "$models" >"$page.models"
fi
show "$PYTHON" -m capsnmt.report "${runs[@]}" \
  --output "$output" --title "Demo: $title"
[ "$dry_run" ] || echo "== done in $((SECONDS / 60)) min $((SECONDS % 60)) s: read $output/report.html"

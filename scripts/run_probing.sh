#!/usr/bin/env bash
# Probing (Li et al. 2019, Table 1; Li et al. 2021, Table 7): every system on every task, their table.
#   [--setting li2019|li2021|multi30k] [--data DIR] [--text FILE] [--output DIR] [--tasks TASK,..]
#   [--seeds 1] [--rows ROW,..] [--gpu] [--threads N] [--set KEY=VALUE] [--dry-run]
# li2019 and li2021 fetch SentEval's ten tasks where --data is not given; multi30k builds three
# tasks from --text. Complete runs are skipped, training resumes.
set -euo pipefail
# shellcheck source=scripts/classification.sh
. "$(dirname "${BASH_SOURCE[0]}")/classification.sh"

parse_flags li2021 "$@"
output=${output:-runs/probing/$setting}
tasks=()
if [ "$setting" = multi30k ]; then
  tasks=(--tasks 'SentLen,WC,BShift')
fi
if [ -z "$data" ]; then
  data=runs/probing/data/$setting
  if [ "$setting" = multi30k ]; then
    [ -n "$text" ] || die "--setting multi30k builds its tasks from text: give --text train.en"
    if [ ! -e "$data/built.json" ]; then
      # the last of SentEval's classes of lengths and its rare words are too rare in 29,000 captions
      make_data capsnmt.sentences.probing.build "$text" --tokenize moses --output "$data" \
        --length-bounds 5,9,13,17,21,26 --first-rank 200 --words 200
    fi
  else
    data=runs/probing/data/senteval
    make_data capsnmt.sentences.probing.download --output "$data"
  fi
fi
exec "$PYTHON" -m capsnmt.experiment.classification_run "$root/configs/probing/$setting" \
  --data "$data" --output "$output" "${tasks[@]}" "${rest[@]}"

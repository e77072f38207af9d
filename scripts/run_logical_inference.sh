#!/usr/bin/env bash
# Logical inference (Li et al. 2021, section 4.3): four systems, three seeds, their figure.
#   [--setting li2021|cpu] [--data DIR] [--output DIR] [--seeds 1,2,3] [--rows ROW,..] [--gpu]
#   [--threads N] [--set KEY=VALUE] [--dry-run]
# Without --data it generates data of its own. Complete runs are skipped, training resumes.
set -euo pipefail
# shellcheck source=scripts/classification.sh
. "$(dirname "${BASH_SOURCE[0]}")/classification.sh"

parse_flags li2021 "$@"
output=${output:-runs/logical_inference/$setting}
if [ -z "$data" ]; then
  data=runs/logical_inference/data
  if [ ! -e "$data/generated.json" ]; then
    make_data capsnmt.sentences.logical_inference.generate --output "$data"
  fi
fi
exec "$PYTHON" -m capsnmt.experiment.classification_run "$root/configs/logical_inference/$setting" \
  --data "$data" --output "$output" --seeds 1,2,3 "${rest[@]}"

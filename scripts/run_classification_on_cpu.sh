#!/usr/bin/env bash
# The results in docs/ on probing and logical inference, on one core: four systems; three seeds of
# logical inference on the data of Bowman et al., one seed of three tasks built from Multi30k.
#   --data DIR (with propositional_logic and multi30k) [--output DIR] [--dry-run]
# To continue after a stop, run the same command again.
set -euo pipefail
self=$(readlink -f "$0")
here=${self%/*}
# shellcheck source=scripts/venv.sh
. "$here/venv.sh"
helps "$self" "$@"

data="" output=runs/classification dry_run=""
parse "--data= --output= --dry-run" "$@"
[ -d "$data/propositional_logic" ] || die "--data is '$data'; give a folder with propositional_logic"
text=$(find "$data/multi30k" -name 'train.en*' -print -quit)
[ -n "$text" ] || die "--data '$data': there is no multi30k/train.en"
common=(--rows all --cpu --threads 1 ${dry_run:+--dry-run})
"$here/run_probing.sh" --dataset probing_multi30k --data "$text" --output "$output/probing" "${common[@]}"
"$here/run_logical_inference.sh" --dataset logical_inference_cpu --data "$data/propositional_logic" \
  --seeds 1,2,3 --output "$output/logical_inference" "${common[@]}"

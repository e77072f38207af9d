#!/usr/bin/env bash
# What the README records of probing and logical inference, on one core: four systems; three seeds
# of logical inference on the data of Bowman et al., one of three tasks built from Multi30k.
#   --data DIR (with propositional_logic and multi30k) [--output DIR]
# The same command again goes on where it was stopped.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/classification.sh
. "$here/classification.sh"

data='' output=runs/classification
while [ $# -gt 0 ]; do
  case $1 in
    --data | --output)
      [ $# -ge 2 ] || die "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift 2
      ;;
    *) die "$1 is unknown: give --data DIR and --output DIR" ;;
  esac
done
[ -d "$data/propositional_logic" ] || die "--data '$data': give a folder with propositional_logic"
text=$(find "$data/multi30k" -name 'train.en*' -print -quit)
[ -n "$text" ] || die "--data '$data': there is no multi30k/train.en"
"$here/run_probing.sh" --setting multi30k --text "$text" --output "$output/probing"
"$here/run_logical_inference.sh" --setting cpu --data "$data/propositional_logic" \
  --output "$output/logical_inference"

#!/usr/bin/env bash
# Measures trainings, decoding and routing on a CPU that does nothing else, and prints the tables of
# docs/speed_measurements.md, in half an hour on two cores.
#   scripts/benchmark_cpu.sh DATA/bin [RUN/averaged.pt] [--dry-run]
# DATA/bin         a data-bin of Multi30k (capsnmt-prepare multi30k)
# RUN/averaged.pt  a baseline that was trained on it; without one, decoding is measured with random parameters only
# --dry-run        print the commands and run nothing
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"

given=() dry_run=""
for word in "$@"; do
  case $word in
    --dry-run) dry_run=yes ;;
    -*) die "$word is unknown; choose from --dry-run" ;;
    *) given+=("$word") ;;
  esac
done
((${#given[@]} == 1 || ${#given[@]} == 2)) || die "give DATA/bin, and a checkpoint if you have one (see --help)"
data=${given[0]} model=${given[1]:-}
[ "$dry_run" ] || [ -d "$data" ] || die "$data is no folder; give a data-bin"
[ "$dry_run" ] || [ -z "$model" ] || [ -f "$model" ] || die "$model is no file; give a checkpoint"
export OMP_WAIT_POLICY=PASSIVE

# trainings SIZE TOKENS UPDATES FLAG... : complete trainings; a flag is of benchmark.py
trainings() {
  show "$PYTHON" "$root/scripts/benchmark.py" --end-to-end "$data" --size "$1" --tokens "$2" --updates "$3" \
    --threads 2 --repeats 3 "${@:4}"
}

fast="--criterion chunked_label_smoothed_cross_entropy --optimizer fused_adam"
bf16="$fast --autocast bf16"
some="--head-aggregation em --head-aggregation-encoder-layers 1,2"
trainings base 1024 20 \
  --system "Transformer, fp32: --arch capsnmt_transformer $fast" \
  --system "Transformer, bf16: --arch capsnmt_transformer $bf16" \
  --system "EM routing of heads, encoder layers 1 and 2, fp32: --arch capsnmt_transformer $some $fast" \
  --system "EM routing of heads, encoder layers 1 and 2, bf16: --arch capsnmt_transformer $some $bf16"
trainings tiny 4096 40 \
  --system "Transformer, bf16: --arch capsnmt_transformer_tiny $bf16" \
  --system "EM routing of heads, encoder layers 1 and 2, bf16: --arch capsnmt_transformer_tiny $some $bf16" \
  --system "EM routing of layers, bf16: --arch transformer_dlcl_routing_tiny $bf16" \
  --system "Multi-layer attention, bf16: --arch transformer_mlmha_tiny $bf16" \
  --system "Capsule attention, bf16: --arch capsule_transformer_tiny $bf16"

export OMP_NUM_THREADS=1
decoding=(show "$PYTHON" "$root/scripts/benchmark_decoding.py" --rounds 3)
[ -z "$model" ] || "${decoding[@]}" --path "$model" --data "$data" --max-len-a 1 --max-len-b 50
"${decoding[@]}" --size base --vocabulary 32000 --sentences 32 --length 20
show "$PYTHON" "$root/scripts/benchmark_kernels.py" --threads 1 --tokens 1024

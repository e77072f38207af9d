#!/usr/bin/env bash
# Measures a machine with a GPU, the most valuable first, and writes DIR/report.md, records.jsonl and log.txt.
#   scripts/benchmark_gpu.sh [--minutes N] [--output DIR] [--only WORD] [--device cuda|cpu]
# --minutes  the most that it takes (default 60); the same command goes on where it stopped
# --output   the folder of the results (default outputs/benchmark_gpu)
# --only     the parts whose names contain this
# --device   cpu rehearses a few parts in small sizes
# Trainings: fairseq's own trainer on padded batches of 8,192 and 32,768 tokens; ours and stock alternate. Kernels:
# on more than the cache holds. Decoding with beam 4. Memory, launches and waits of the host are counted.
# PYTHON names the interpreter (default .venv/bin/python, else python3). Ends with status 1 if a part fails.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"
exec "$PYTHON" "$root/scripts/benchmark_gpu.py" "$@"

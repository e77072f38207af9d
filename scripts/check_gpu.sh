#!/usr/bin/env bash
# Checks in five minutes that everything is right on this machine's GPU, one line a part; goes on after a fault.
#   scripts/check_gpu.sh [--minutes N] [--output DIR] [--only WORD] [--device cuda|cpu]
# --minutes  the most that it takes (default 5)
# --output   the folder of records.jsonl and log.txt (default outputs/check_gpu)
# --only     the parts whose names contain this
# --device   cpu rehearses a few parts in small sizes
# The parts: the kernels against fp64, in values and gradients; the tests marked cuda; 20 updates of every architecture
# and aggregation in fp32, fp16, AMP and bf16 against the losses of the CPU; a trained model's translations.
# PYTHON names the interpreter (default .venv/bin/python, else python3). Ends with status 1 if a part is wrong.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/python.sh
. "${self%/*}/python.sh"
# shellcheck source=scripts/flags.sh
. "$root/scripts/flags.sh"
helps "$self" "$@"
exec "$PYTHON" "$root/scripts/check_gpu.py" "$@"

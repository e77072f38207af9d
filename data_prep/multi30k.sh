#!/usr/bin/env bash
# Prepare Multi30k English-German: multi30k.sh --output DIR [--data DIR] [--offline] [--workers N]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" -m data_prep multi30k "$@"

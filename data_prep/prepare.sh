#!/usr/bin/env bash
# Prepare a corpus from any folder: prepare.sh RECIPE --output DIR [...]; PYTHON names the python
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" -m data_prep "$@"

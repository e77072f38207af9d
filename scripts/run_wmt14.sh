#!/usr/bin/env bash
# WMT14 English-German; the flags are those of capsnmt-run (--help lists them)
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset wmt14_en_de "$@"

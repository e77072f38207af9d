#!/usr/bin/env bash
# WMT17 Chinese-English; the flags are those of capsnmt-run (--help lists them)
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset wmt17_zh_en "$@"

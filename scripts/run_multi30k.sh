#!/usr/bin/env bash
# Multi30k English-German; the flags are those of capsnmt-run (--help lists them)
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/run_experiment.sh" --dataset multi30k "$@"

#!/usr/bin/env bash
# Prepare Multi30k English-German: multi30k.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/prepare.sh" multi30k "$@"

#!/usr/bin/env bash
# Prepare Multi30k English-German: multi30k.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" multi30k "$@"

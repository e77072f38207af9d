#!/usr/bin/env bash
# Prepare IWSLT15 English-Vietnamese: iwslt15_en_vi.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/prepare.sh" iwslt15_en_vi "$@"

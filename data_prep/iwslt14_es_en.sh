#!/usr/bin/env bash
# Prepare IWSLT14 Spanish-English: iwslt14_es_en.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/prepare.sh" iwslt14_es_en "$@"

#!/usr/bin/env bash
# Prepare WMT14 English-German: wmt14_en_de.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/prepare.sh" wmt14_en_de "$@"

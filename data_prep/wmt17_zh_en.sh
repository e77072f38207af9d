#!/usr/bin/env bash
# Prepare WMT17 Chinese-English: wmt17_zh_en.sh --output DIR [--local DIR] [--mirror URL] [--help]
set -euo pipefail
exec bash "$(dirname "$(readlink -f "$0")")/prepare.sh" wmt17_zh_en "$@"

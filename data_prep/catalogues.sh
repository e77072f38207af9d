#!/usr/bin/env bash
# Prepare the demo's corpus: catalogues.sh --output DIR [--pair en-de|es-en|en-vi|zh-en] [...]
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/prepare.sh" catalogues "$@"

#!/usr/bin/env bash
# Prepare a corpus from any folder: prepare.sh RECIPE --output DIR [...]; PYTHON names the python
set -euo pipefail
# shellcheck source=scripts/python.sh
. "$(dirname "$(readlink -f "$0")")/../scripts/python.sh"
exec "$PYTHON" -m capsnmt.corpora "$@"

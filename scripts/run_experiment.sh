#!/usr/bin/env bash
# One experiment from the raw corpus to its scores; --help lists the flags.
set -euo pipefail
# shellcheck source=scripts/python.sh
. "$(dirname "$(readlink -f "$0")")/python.sh"
exec "$PYTHON" -m capsnmt.launch "$@"

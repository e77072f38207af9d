#!/usr/bin/env bash
# Measures everything on a machine with a GPU and writes docs/speed_gpu.md.
#   scripts/benchmark_gpu.sh [--output DIR] [--page FILE] [--rows "DATASET/ROW ..."] [--dry-run]
# --output   the folder of the results (default outputs/speed_gpu)
# --page     the page to write (default docs/speed_gpu.md)
# --rows     these rows only (default: every row with a speed of its own)
# --dry-run  print the commands and run nothing
# Needs an environment whose torch finds the GPU; PYTHON names its interpreter (default python3).
# Completed steps are skipped: repeat the same command to continue.
set -euo pipefail
self=$(readlink -f "$0")
cd "${self%/*}/.."
# shellcheck source=scripts/flags.sh
. scripts/flags.sh
helps "$self" "$@"

output=outputs/speed_gpu page=docs/speed_gpu.md rows="" dry_run="" python=${PYTHON:-python3}
parse "--output= --page= --rows= --dry-run" "$@"

[ "$dry_run" ] || "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
  die "torch of $python finds no GPU; set PYTHON to the interpreter of an environment that does"

# step NAME COMMAND... : runs a command once and keeps its output as NAME.md
step() {
  local name=$1
  shift
  if [ "$dry_run" ]; then
    show "$@"
  elif [ -e "$output/$name.md" ]; then
    echo "-- $name: complete"
  else
    echo "-- $name"
    "$@" >"$output/$name.partial"
    mv "$output/$name.partial" "$output/$name.md"
  fi
}

# kernel_tests : the last line of pytest
kernel_tests() {
  "$python" -m pytest -q -m cuda tests | tee "$output/tests.log" >&2
  tail -n 1 "$output/tests.log"
}

if [ "$dry_run" ]; then
  echo "$python -m pytest -q -m cuda tests"
else
  mkdir -p "$output"
  step tests kernel_tests
fi
for dtype in fp32 fp16 bf16; do
  step "kernels-$dtype" "$python" scripts/benchmark_kernels.py --device cuda --dtype "$dtype"
done
chosen=()
# shellcheck disable=SC2206  # a list
[ ! "$rows" ] || chosen=(--rows $rows)
compiled=()
for arch in capsnmt_transformer transformer_em_routing transformer_dlcl_routing; do
  compiled+=(--system "$arch: --arch $arch" --system "$arch, compiled: --arch $arch --compile")
done
for dtype in fp16 bf16; do
  step "rows-$dtype" "$python" scripts/benchmark.py --device cuda --dtype "$dtype" \
    --phases train decode "${chosen[@]}" --json "$output/rows-$dtype.json"
  step "compiled-$dtype" "$python" scripts/benchmark.py --device cuda --dtype "$dtype" \
    --phases train --no-floor "${compiled[@]}" --json "$output/compiled-$dtype.json"
done
[ "$dry_run" ] && exit 0

{
  echo "# Speed on a GPU"
  echo
  echo "Written by \`scripts/benchmark_gpu.sh\`. [Speed](speed.md) explains the columns."
  echo
  echo "## Tests"
  echo
  echo "\`pytest -m cuda tests\`: $(cat "$output/tests.md")"
  for dtype in fp32 fp16 bf16; do
    echo
    echo "## Routing operators, votes in $dtype"
    echo
    cat "$output/kernels-$dtype.md"
  done
  for dtype in fp16 bf16; do
    echo
    echo "## Rows, $dtype"
    echo
    cat "$output/rows-$dtype.md"
    echo
    echo "## \`--compile\`, $dtype"
    echo
    cat "$output/compiled-$dtype.md"
  done
} >"$page.partial"
mv "$page.partial" "$page"
echo "== done: read $page"

# shellcheck shell=bash
# Sourced by the other scripts: errors, the values of flags, and --dry-run.

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# number FLAG VALUE [LEAST] : ends with an error unless VALUE is an integer of at least LEAST (default 1)
number() {
  if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || ((10#$2 < ${3:-1})); then
    die "$1 $2: give a whole number, ${3:-1} or more"
  fi
}

# show COMMAND... : runs a command, or prints it if dry_run is set
show() {
  if [ "${dry_run:-}" ]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

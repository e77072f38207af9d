# shellcheck shell=bash
# Sourced by run_probing.sh and run_logical_inference.sh: their interpreter and their flags.

# shellcheck source=scripts/python.sh
. "$(dirname "${BASH_SOURCE[0]}")/python.sh"

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# make_data MODULE ARGUMENTS... : runs the module, or prints the command for --dry-run
make_data() {
  case " ${rest[*]} " in
    *' --dry-run '*)
      printf '%q ' python -m "$@"
      echo
      ;;
    *) "$PYTHON" -m "$@" ;;
  esac
}

# parse_flags DEFAULT_SETTING FLAGS... : sets setting, data, text, output, and rest for the launcher
parse_flags() {
  # shellcheck disable=SC2034  # for whoever sources this
  setting=$1 data='' text='' output='' rest=()
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      --setting | --data | --text | --output)
        [ $# -ge 2 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift 2
        ;;
      -h | --help)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
      *)
        rest+=("$1")
        shift
        ;;
    esac
  done
  local kind=${0##*/run_} settings
  settings=("$root/configs/${kind%.sh}"/*/)
  [ -n "$setting" ] && [ -d "$root/configs/${kind%.sh}/$setting" ] ||
    die "--setting '$setting' is unknown: choose from $(basename -a "${settings[@]}" | paste -sd ' ')"
}

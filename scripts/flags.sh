# shellcheck shell=bash
# Sourced by the other scripts: errors, the values of flags, and --dry-run.

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# helps SCRIPT WORD... : if --help is among the words, prints the comment at the top of the script and ends
helps() {
  local script=$1 word
  shift
  for word in "$@"; do
    case $word in
      -h | --help)
        sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$script"
        exit 0
        ;;
    esac
  done
}

# parse FLAGS WORD... : sets the variable of each flag among the words, to the next word if FLAGS has "=" after the
# flag, else to yes; another word is an error. FLAGS is a list such as "--max-update= --dry-run"
parse() {
  local known=$1 variable
  shift
  while [ $# -gt 0 ]; do
    # no ranges: those of letters and digits are others in every language
    [[ $1 == --* && $1 != *[[:space:]=]* && " $known " == *" $1"[=\ ]* ]] || die "$1 is unknown; choose from ${known//=/}"
    variable=${1#--}
    variable=${variable//-/_}
    if [[ " $known " == *" $1 "* ]]; then
      printf -v "$variable" yes
    else
      [[ ${2:---} != --* ]] || die "$1 needs a value (see --help)"
      printf -v "$variable" %s "$2"
      shift
    fi
    shift
  done
}

# number FLAG [LEAST] : ends with an error unless the variable of a flag is an integer of at least LEAST (default 1);
# drops zeros before it: bash reads 010 as 8, and capsnmt-run names the folder of seed 01 seed-1
number() {
  local name=${1#--}
  name=${name//-/_}
  if ! [[ ${!name} =~ ^[[:digit:]]{1,9}$ ]] || ((10#${!name} < ${2:-1})); then
    die "$1 is ${!name}; give a whole number, ${2:-1} or more"
  fi
  printf -v "$name" %d "$((10#${!name}))"
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

#!/usr/bin/env bash
# Runs a command in a clone of this checkout's last commit, in surroundings that are not this machine's: a folder with
# spaces and letters beyond ASCII, a user without privileges, a Turkish locale, a processor of another name.
#   scripts/elsewhere.sh COMMAND [ARGUMENTS...]
# What cannot be had here is said and left out: another user and processor need root and a Python that is not root's own,
# the locale Debian's locales.
set -euo pipefail
self=$(readlink -f "$0")
# shellcheck source=scripts/flags.sh
. "${self%/*}/flags.sh"
helps "$self" "$@"
[ $# -gt 0 ] || die "give a COMMAND, such as bash scripts/test.sh"
repository=$(readlink -f "${self%/*}/..")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
clone="$work/mein Ordner ü/capsnmt"
mkdir -p "$clone" "$work/home" "$work/tmp ü" "$work/locales"
# Windows' git is set to this, and a clone of it may be used in WSL
git -c core.autocrlf=true -c core.symlinks=false clone --quiet "$repository" "$clone"

# In Turkish, q, w and x are no letters, and the capital of i is no I; a comma separates decimals.
language=tr_TR.UTF-8
if command -v localedef >/dev/null && localedef --inputfile tr_TR --charmap UTF-8 "$work/locales/$language" 2>/dev/null; then
  export LOCPATH=$work/locales
else
  echo "!! NOT in Turkish: there is no source of locales here (apt-get install locales)" >&2
  language=C.UTF-8
fi
data=$(readlink -m "${CAPSNMT_DATA:-$repository/../shared/data}")
surroundings=("LANG=$language" "LC_ALL=$language" "HOME=$work/home" "TMPDIR=$work/tmp ü")

# as_other COMMAND... : runs it as a user without privileges. /proc/cpuinfo is replaced for this command alone, and the
# real data lie where others may read them; programs that are root's own are not on the PATH.
as_other() {
  # shellcheck disable=SC2016  # the inner shell's arguments
  env "${surroundings[@]}" CAPSNMT_DATA="$work/data" PATH=/usr/local/bin:/usr/bin:/bin unshare --mount bash -c '
    mount --bind "$1/cpuinfo" /proc/cpuinfo
    [ ! -d "$2" ] || { mkdir -p "$1/data" && mount --bind "$2" "$1/data"; }
    umask 077
    exec setpriv --reuid nobody --regid "$(id -gn nobody)" --clear-groups "${@:3}"' \
    - "$work" "$data" "$@"
}

cd "$clone"
sed 's/^\(model name[^:]*:\).*/\1 Ampere(R) Altra(TM) [Q80-30] CPU, 3,0 GHz/' /proc/cpuinfo >"$work/cpuinfo"
if [ "$(id -u)" = 0 ]; then chown -R nobody:"$(id -gn nobody)" "$work"; fi
if as_other bash -c '. scripts/venv.sh && has_host main' 2>/dev/null; then
  as_other "$@"
else
  echo "!! NOT as another user, with another processor: that needs root, setpriv, unshare and a Python that is not root's" >&2
  [ "$(id -u)" != 0 ] || chown -R 0:0 "$work"
  (umask 077 && env "${surroundings[@]}" CAPSNMT_DATA="$data" "$@")
fi

# shellcheck shell=bash
# Sourced by the other scripts: finds a Python for a host and keeps a virtual environment complete.
#   use_venv main      -> .venv       Python 3.11 to 3.14, a fork of fairseq 0.12.3, the torch of constraints.txt
#   use_venv main-3.N  -> .venv-3.N   the same with Python 3.N
#   use_venv stock     -> .venv-stock Python 3.9 or 3.10, fairseq 0.12.2, constraints-stock.txt
# All set PYTHON to the environment's interpreter.

# Modules are compiled when they are first imported, and only once.
unset PYTHONDONTWRITEBYTECODE
# What a shell tells another Python, as modules of clusters and ROS do, is not for that of an environment; with
# CUDA_HOME fairseq's source builds kernels for a GPU, of which nothing here uses one.
unset PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONWARNINGS PYTHONINSPECT CUDA_HOME
# An environment is where it is, and has versions without checksums: pip may be told otherwise.
unset PIP_PREFIX PIP_ROOT
export PIP_USER=0 PIP_REQUIRE_HASHES=0

# no cd: with CDPATH it may find another folder, and prints it
REPO=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")
# shellcheck source=scripts/flags.sh
. "$REPO/scripts/flags.sh"

# interpreters VERSION... : the interpreters on PATH, and of pyenv, with one of the versions, in the order of these
interpreters() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" python3 "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$version"*/bin/python; do
      if [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ]; then
        command -v "$candidate"
      fi
    done
  done
}

# find_python VERSION... : the first of them that can make an environment; of an environment that is active, which may
# be the one to be made anew, the Python that it was made with
find_python() {
  local candidate base
  while read -r candidate; do
    if base=$("$candidate" -c 'import ensurepip, os, sys, venv
print("" if sys.prefix == sys.base_prefix else os.path.realpath(sys.executable))' 2>/dev/null); then
      echo "${base:-$candidate}"
      return 0
    fi
  done < <(interpreters "$@")
  return 1
}

# versions_of HOST : the versions of Python that a host runs on, those with a wheel of fairseq first
versions_of() {
  case $1 in
    main) echo 3.11 3.12 3.13 3.14 ;;
    main-3.11 | main-3.12 | main-3.13 | main-3.14) echo "${1#main-}" ;;
    stock) echo 3.10 3.9 ;;
    *) die "host '$1' is unknown; choose main, main-3.11 to main-3.14, or stock" ;;
  esac
}

# has_host HOST : whether this machine has an interpreter for the host
has_host() {
  # shellcheck disable=SC2046  # a list of versions
  find_python $(versions_of "$1") >/dev/null
}

# default_host : main, unless this machine has an interpreter for stock alone
default_host() {
  if [ -e "$REPO/.venv/installed" ] || has_host main || ! has_host stock; then echo main; else echo stock; fi
}

# install PYTHON ARGUMENTS... : as pip install into the environment of an interpreter, with the uv of PYTHON's. uv
# links the files of a package that it has had before, which takes a fifth of pip's time, and reads the metadata of
# omegaconf 2.0.6, which fairseq 0.12.2 needs and newer pips refuse. What uv cannot install, pip does.
install() {
  local target=$1 said pip=("$PYTHON" -m pip)
  shift
  said=$(mktemp)
  if install_with_uv --python "$target" "$@" 2>&1 | tee "$said"; then
    rm -f "$said"
    return
  fi
  echo "!! pip installs, as uv could not: $(reason_in "$said")"
  rm -f "$said"
  [ "$target" = "$PYTHON" ] || pip+=(--python "$target")
  "${pip[@]}" install --target= --disable-pip-version-check --progress-bar off "$@" 2>&1
}

# install_with_uv ARGUMENTS... : as uv pip install, where and how pip would, in a subshell
install_with_uv() (
  uv=${PYTHON%/*}/uv
  [ -x "$uv" ] ||
    "$PYTHON" -m pip install --target= --quiet --disable-pip-version-check --retries 1 -c "$REPO/constraints.txt" uv || exit
  told=$("$PYTHON" "$REPO/scripts/pip_settings.py") || exit
  while IFS= read -r line; do
    case $line in
      --*) set -- "$@" "$line" ;;
      *=*) export "${line?}" ;;
    esac
  done <<<"$told"
  exec "$uv" pip install "$@"
)

# reason_in FILE : why the installation failed whose output is in a file: the last error of pip or uv
reason_in() {
  local reason connection
  reason=$(grep -E '^ *(ERROR|error|cause|Caused by): ' "$1" | grep -v subprocess-exited | tail -n 1)
  reason=${reason#*: }
  connection=$(grep -o 'connection broken by .*' "$1" | tail -n 1 | cut -c 1-160)
  echo "${reason:-it does not say}${connection:+ ($connection)}"
}

# builds_fairseq PYTHON : whether fairseq is built for this Python, of which there is no wheel
builds_fairseq() {
  "$1" -c 'import platform, sys
wheels = (3, 11) <= sys.version_info < (3, 13) and sys.platform == "linux" and platform.machine() == "x86_64"
sys.exit(wheels)'
}

# can_build PYTHON : ends with an error unless C++ with this Python's headers can be compiled
can_build() {
  local headers compiler=${CXX:-c++} # which may have a word before it, as "ccache g++", or flags
  headers=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  command -v "${compiler%% *}" >/dev/null ||
    die "no C++ compiler ($compiler) on PATH, with which $("$1" --version) builds fairseq; install one (on Debian g++), or Python 3.11 or 3.12 on x86-64 Linux, for which it is built"
  [ -e "$headers/Python.h" ] ||
    die "$headers/Python.h, with which $("$1" --version) builds fairseq, does not exist; install it (on Debian python3-dev)"
}

# give_back VENV : undoes the renewal of an environment that has failed or was killed, but for its log
give_back() {
  if [ -e "$1.old" ] && [ ! -e "$1/installed" ]; then
    mv -f "$1/installation.log" "$1.old" 2>/dev/null || true
    rm -rf "$1" && mv "$1.old" "$1"
  fi
}

# use_venv HOST [EXTRAS] : brings the environment of a host up to date and sets PYTHON
# EXTRAS is a comma list (default: fairseq,demo,dev). An environment that has more satisfies it.
use_venv() {
  local host=$1 extras=${2:-fairseq,demo,dev} versions python stamp installed extra missing said made
  local constraints=$REPO/constraints.txt venv=$REPO/.venv${host#main}
  versions=$(versions_of "$host") || exit
  if [ "$host" = stock ]; then
    constraints=$REPO/constraints-stock.txt venv=$REPO/.venv-stock
  fi
  PYTHON=$venv/bin/python
  # One script at a time: in a fresh clone, two would delete each other's environment.
  (
    exec 9<"$constraints"
    ! command -v flock >/dev/null || flock 9 || true
    give_back "$venv"
    stamp=$(cat "$REPO/setup.py" "$constraints" | cksum)
    # The stamp, then the extras that are installed.
    installed=$(cat "$venv/installed" 2>/dev/null) || installed=
    [ ! -e "$venv" ] || [ "$installed" ] || [ -e "$venv/setup.cfg" ] ||
      die "$venv was not made by these scripts, which would replace it; move it away, or remove it"
    if [ ! -x "$PYTHON" ] || [ "${installed%%$'\n'*}" != "$stamp" ]; then
      # shellcheck disable=SC2086  # a list of versions
      python=$(find_python $versions) || {
        said=$(interpreters $versions)
        [ -z "$said" ] || die "${said%%$'\n'*} has no venv with ensurepip; install it (on Debian python3-venv)"
        said=$(python3 --version 2>&1) || said="no python3"
        die "host $host needs Python ${versions// / or }, and there is none on PATH ($said); install one"
      }
      # as without a network; beside it the new one cannot be made, as its programs know where they are
      trap 'give_back "$venv"' EXIT
      # venv and ensurepip are two steps, as venv hides the reason of the second
      said=$({ rm -rf "$venv.old" && { [ -z "$installed" ] || mv "$venv" "$venv.old"; } && rm -rf "$venv" &&
        mkdir "$venv" && : >"$venv/setup.cfg" && # by which it is known as ours
        "$python" -m venv --without-pip "$venv" && "$PYTHON" -m ensurepip --default-pip; } 2>&1) ||
        die "$venv cannot be made: ${said##*$'\n'}"
      installed=$stamp$'\n'
    fi
    missing=""
    for extra in ${extras//,/ }; do
      [[ ,${installed#*$'\n'}, == *,$extra,* ]] || missing+=${missing:+,}$extra
    done
    made=$(sed -n 's/^egg_base=//p' "$venv/setup.cfg" 2>/dev/null) || made=
    [ -z "$made" ] || [ "$made" -ef "$venv" ] ||
      echo "!! $venv was made as $made: its programs, such as capsnmt-run, run what is there; remove it, and it is made again" >&2
    [ "$missing" ] || exit 0
    echo "== installing $missing into ${venv#"$REPO"/} ($("$PYTHON" --version), once; later starts skip this)"
    # setuptools would write its metadata into the checkout, where two hosts would share one folder
    printf '[egg_info]\negg_base=%s\n' "$venv" >"$venv/setup.cfg"
    # uv leaves its locks in the temporary folder
    local -x TMPDIR=$venv DIST_EXTRA_CONFIG=$venv/setup.cfg
    : >"$venv/installation.log"
    install_project "$PYTHON" "$missing" -c "$constraints"
    installed=${installed#*$'\n'}
    printf '%s\n%s\n' "$stamp" "${installed:+$installed,}$missing" >"$venv/installed"
    rm -rf "$venv.old"
  )
}

# install_project PYTHON EXTRAS OPTIONS... : installs this checkout, with extras, into the environment of an interpreter
install_project() {
  local target=$1 extras=$2 options=("${@:3}")
  if builds_fairseq "$target"; then
    can_build "$target"
    if "$target" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      # The fork is built with the torch that it runs with: for a build of its own, pip and uv would fetch the newest.
      logged install "$target" "${options[@]}" torch numpy cython setuptools wheel
      options+=(--no-build-isolation)
    fi
  fi
  logged install "$target" "${options[@]}" -e "${REPO}[$extras]"
}

# logged COMMAND... : runs a part of the installation, and shows its stages; ends with the reason of a failure
logged() {
  local log=${PYTHON%/bin/*}/installation.log
  # with colours, which a variable may force, neither stages nor reasons would be found
  { unset FORCE_COLOR CLICOLOR_FORCE && "$@"; } | tee -a "$log" | sed -u -n -E -e '/^!!/p' \
    -e 's/^ *(Resolved|Downloading|Building|Prepared|Installed|Collecting)/   \1/p' ||
    die "nothing could be installed: $(reason_in "$log") (all of it: $log); the same command tries again"
}

# shellcheck shell=bash
# Sourced by the other scripts: finds a Python for a host and keeps a virtual environment complete.
#   use_venv main       -> .venv        Python 3.11 or 3.12, ve-fairseq, the torch of constraints.txt
#   use_venv main-3.12  -> .venv-3.12   the same with Python 3.12
#   use_venv stock      -> .venv-stock  Python 3.9 or 3.10, fairseq 0.12.2, constraints-stock.txt
# All set PYTHON to the environment's interpreter.

# Modules are compiled when they are first imported, and only once.
unset PYTHONDONTWRITEBYTECODE

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/flags.sh
. "$REPO/scripts/flags.sh"

# find_python VERSION... : the first interpreter on PATH (or of pyenv) with one of the versions
find_python() {
  local version candidate
  for version in "$@"; do
    for candidate in "python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python; do
      if command -v "$candidate" >/dev/null 2>&1 &&
        [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ] &&
        "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
        command -v "$candidate"
        return 0
      fi
    done
  done
  return 1
}

# versions_of HOST : the versions of Python that a host runs on
versions_of() {
  case $1 in
    main) echo 3.11 3.12 ;;
    main-3.12) echo 3.12 ;;
    stock) echo 3.10 3.9 ;;
    *) die "host '$1' is unknown; choose main, main-3.12 or stock" ;;
  esac
}

# has_host HOST : whether this machine has an interpreter, and a wheel of fairseq, for the host
has_host() {
  [ "$1" = stock ] || [ "$(uname -sm)" = "Linux x86_64" ] || return 1
  # shellcheck disable=SC2046  # a list of versions
  find_python $(versions_of "$1") >/dev/null
}

# install ARGUMENTS... : as pip install, with the uv of PYTHON's environment. uv links the files of a package that
# it has had before, which takes a fifth of pip's time, and reads the metadata of omegaconf 2.0.6, which fairseq
# 0.12.2 needs and newer pips refuse. It reads none of pip's settings, so it is told where pip finds packages.
install() {
  local uv=${PYTHON%/*}/uv links index
  [ -x "$uv" ] || "$PYTHON" -m pip install --quiet --disable-pip-version-check -c "$REPO/constraints.txt" uv || return
  if [ -z "${UV_FIND_LINKS+set}" ]; then
    links=${PIP_FIND_LINKS:-$("$PYTHON" -m pip config get global.find-links 2>/dev/null)} || true
    index=${PIP_INDEX_URL:-$("$PYTHON" -m pip config get global.index-url 2>/dev/null)} || true
    export UV_FIND_LINKS=${links// /,} UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
  fi
  "$uv" pip install "$@"
}

# use_venv HOST [EXTRAS] : brings the environment of a host up to date and sets PYTHON
# EXTRAS is a comma list (default: fairseq,demo,dev). An environment that has more satisfies it.
use_venv() {
  local host=$1 extras=${2:-fairseq,demo,dev} versions python stamp installed extra missing
  local constraints=$REPO/constraints.txt venv=$REPO/.venv${host#main}
  local why=" (ve-fairseq has wheels for no other Python, and no source distribution)"
  versions=$(versions_of "$host") || exit
  if [ "$host" = stock ]; then
    constraints=$REPO/constraints-stock.txt venv=$REPO/.venv-stock why=""
  fi
  PYTHON=$venv/bin/python
  # One script at a time: in a fresh clone, two would delete each other's environment.
  (
    exec 9<"$constraints"
    ! command -v flock >/dev/null || flock 9 || true
    stamp=$(cat "$REPO/setup.py" "$constraints" | cksum)
    # The stamp, then the extras that are installed.
    installed=$(cat "$venv/installed" 2>/dev/null) || installed=
    if [ ! -x "$PYTHON" ] || [ "${installed%%$'\n'*}" != "$stamp" ]; then
      # shellcheck disable=SC2086  # a list of versions
      python=$(find_python $versions) ||
        die "host $host needs Python ${versions// / or } with venv$why, and there is none on PATH; install one (on Debian also python3-venv)"
      rm -rf "$venv"
      "$python" -m venv "$venv"
      installed=$stamp$'\n'
    fi
    missing=""
    for extra in ${extras//,/ }; do
      [[ ,${installed#*$'\n'}, == *,$extra,* ]] || missing+=${missing:+,}$extra
    done
    [ "$missing" ] || exit 0
    echo "== installing $missing into ${venv#"$REPO"/} ($("$PYTHON" --version), once; later starts skip this)"
    # setuptools would write its metadata into the checkout, where two hosts would share one folder
    printf '[egg_info]\negg_base=%s\n' "$venv" >"$venv/setup.cfg"
    # uv leaves its locks in the temporary folder
    if ! TMPDIR=$venv DIST_EXTRA_CONFIG=$venv/setup.cfg install --python "$PYTHON" -c "$constraints" -e "${REPO}[$missing]" 2>&1 |
      tee "$venv/installation.log" | sed -u -n -E 's/^ *(Resolved|Downloading|Building|Prepared|Installed)/   \1/p'; then
      cat "$venv/installation.log" >&2
      die "nothing could be installed (the output: $venv/installation.log); the same command tries again"
    fi
    installed=${installed#*$'\n'}
    printf '%s\n%s\n' "$stamp" "${installed:+$installed,}$missing" >"$venv/installed"
  )
}

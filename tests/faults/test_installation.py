"""The scripts install what pip can install, say in one line what they cannot, and have help."""

import functools
import http.server
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

import pytest

from capsnmt.machine import cores
from tests.commands import is_refusal
from tests.interpreter import executable, ran
from tests.support import PLUGIN, REPO

pytestmark = pytest.mark.system
# what tells pip and uv something, of which a test knows nothing
OF_THE_MACHINE = re.compile(r"PIP_|UV_|.*_CA_BUNDLE$|SSL_CERT|.*_PROXY$|.*_proxy$")
# and empty, so that the files of the system, such as /etc/pip.conf, tell pip nothing either
NOT_OF_THE_MACHINE = "extra-index-url =\nfind-links =\nno-index =\nconstraint =\nproxy =\ncert ="
UV = Path(sys.prefix, "bin", "uv")
TOOLS = (
    *("bash", "cat", "chmod", "cksum", "cut", "dirname", "env", "flock", "grep", "head"),
    *("mkdir", "mktemp", "mv", "readlink", "rm", "sed", "tail", "tee"),
)


class Index(http.server.SimpleHTTPRequestHandler):
    """An index of packages; asked as a proxy, it is that of every host."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(re.sub(r"^https?://[^/]*", "", path))

    def log_message(self, format: str, *args: object) -> None:
        self.server.agents.append(self.headers.get("User-Agent", ""))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a space, an index of one package, and the certificate of its own authority."""
    folder = tmp_path_factory.mktemp("an index")
    page = folder / "simple" / "wanted"
    page.mkdir(parents=True)
    wheel = "wanted-1.0-py3-none-any.whl"
    of_wheel = {
        "METADATA": "Metadata-Version: 2.1\nName: wanted\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(page / wheel, "w") as file:
        file.writestr("wanted.py", "answer = 42\n")
        for name, text in of_wheel.items():
            file.writestr(f"wanted-1.0.dist-info/{name}", text)
    (page / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>', "utf-8")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("NOT TESTED with a certificate of one's own: no openssl")
    new = ["req", "-newkey", "rsa:2048", "-nodes"]
    by = ["-CA", "own.pem", "-CAkey", "own.key", "-CAcreateserial", "-days", "2"]
    # what OpenSSL 1.1.1 can, too
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n", "utf-8")
    made = ["-extfile", "names", "-out", "server.pem"]
    for words in (
        [*new, "-x509", "-subj", "/CN=our own authority", "-keyout", "own.key", "-out", "own.pem"],
        [*new, "-subj", "/CN=127.0.0.1", "-keyout", "server.key", "-out", "server.csr"],
        ["x509", *by, "-req", "-in", "server.csr", *made],
    ):
        subprocess.run([openssl, *words], cwd=folder, check=True, capture_output=True)
    return folder / "own.pem"


@pytest.fixture(params=["https", "http"])
def index(request: pytest.FixtureRequest, folder: Path) -> Iterator[http.server.HTTPServer]:
    handler = functools.partial(Index, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.agents = []  # type: ignore[attr-defined]
        if request.param == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate = request.getfixturevalue("certificate")
            folder = certificate.parent
            context.load_cert_chain(folder / "server.pem", folder / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def bare(folder: Path) -> Path:
    """The interpreter of an environment with pip, and with the uv of ours."""
    subprocess.run([sys.executable, "-m", "venv", folder / "bare"], check=True)
    python = folder / "bare" / "bin" / "python"
    if not UV.exists():
        pytest.skip(f"NOT TESTED: {UV} does not exist; the scripts install it")
    python.with_name("uv").symlink_to(UV)
    return python


def installs(python: Path, words: str, told: str, **variables: str) -> subprocess.CompletedProcess:
    """Run ``install`` of scripts/venv.sh where pip has a file of settings, and no package."""
    uninstall = [UV, "pip", "uninstall", "--quiet", "--python", python, "wanted"]
    subprocess.run(uninstall, check=True, capture_output=True)
    settings = python.parents[1] / "told.conf"
    settings.write_text(f"[DEFAULT]\n{NOT_OF_THE_MACHINE}\n[global]\n{told}\n", "utf-8")
    text = f'set -euo pipefail; . "$1"; PYTHON=$2; {words}'
    given = ["bash", "-c", text, "-", REPO / "scripts" / "venv.sh", python]
    return untold(given, PIP_CONFIG_FILE=str(settings), UV_NO_CACHE="1", **variables)


def check_installed(done: subprocess.CompletedProcess, python: Path, *said: str) -> None:
    """Check that the package was installed, and what was said about it."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("!!")] == [*said]
    assert ran([python, "-c", "import wanted; print(wanted.answer)"]).stdout == "42\n"


def untold(
    words: Sequence[object], cwd: Optional[Path] = None, **variables: str
) -> subprocess.CompletedProcess:
    """Run a program where no setting of this machine reaches pip and uv."""
    unset = [word for each in os.environ if OF_THE_MACHINE.match(each) for word in ("-u", each)]
    return ran([shutil.which("env"), *unset, *words], cwd, **variables)


# what pip is told, where {there} is the address of the index
TOLD: Dict[str, List[str]] = {
    "https": [
        "index-url = {there}/simple\ncert = {cert}",
        "index-url = {there}/empty\nextra-index-url = {there}/simple\ncert = {cert}\nquiet = 1",
        "no-index = true\nfind-links = {there}/simple/wanted/\ncert = {cert}",
        "index-url = {there}/simple\ntrusted-host = localhost",
    ],
    "http": [
        "index-url = http://nowhere.invalid/simple\ntrusted-host = nowhere.invalid\nproxy = {there}"
    ],
}


@pytest.mark.parametrize(
    ("index", "told"),
    [(kind, told) for kind, each in TOLD.items() for told in each],
    indirect=["index"],
)
def test_uv_installs_where_and_how_pip_would(
    index: http.server.HTTPServer, told: str, folder: Path, bare: Path
) -> None:
    scheme = "http" if "proxy" in told else "https"
    there = f"{scheme}://localhost:{index.server_port}"
    told = told.format(there=there, cert=folder / "own.pem")
    # a variable that is empty is none
    check_installed(installs(bare, 'install "$PYTHON" wanted', told, PIP_INDEX_URL=""), bare)
    assert index.agents  # type: ignore[attr-defined]
    assert all(agent.startswith("uv/") for agent in index.agents)  # type: ignore[attr-defined]


@pytest.mark.parametrize("index", ["https"], indirect=True)
def test_pip_installs_what_uv_cannot(
    index: http.server.HTTPServer, folder: Path, bare: Path, tmp_path: Path
) -> None:
    """As with a setting that only pip knows; what pip is told to refuse, or to put elsewhere."""
    other = tmp_path / "env" / "bin" / "python"
    other.parent.mkdir(parents=True)
    executable(other, f'#!/bin/sh\nexec "{bare}" "$@"\n')
    executable(other.with_name("uv"), "#!/bin/sh\necho 'error: UnknownIssuer' >&2; exit 2\n")
    told = f"index-url = https://localhost:{index.server_port}/simple\ncert = {folder / 'own.pem'}"
    told += f"\nuser = true\ntarget = {tmp_path}\nrequire-hashes = true"
    done = installs(other, 'install "$PYTHON" wanted', told)
    check_installed(done, bare, "!! pip installs, as uv could not: UnknownIssuer")


@pytest.mark.parametrize(
    ("package", "where", "reason"),
    [
        ("unwanted", "{there}/simple", "No matching distribution found for unwanted"),
        ("wanted", "https://127.0.0.1:9/simple", "(connection broken by"),
    ],
    ids=["no such package", "no network"],
)
@pytest.mark.parametrize("index", ["https"], indirect=True)
def test_a_failure_is_one_line_with_the_reason_of_pip(
    index: http.server.HTTPServer, package: str, where: str, reason: str, folder: Path, bare: Path
) -> None:
    there = f"https://localhost:{index.server_port}"
    told = f"index-url = {where.format(there=there)}\ncert = {folder / 'own.pem'}"
    words = f'logged install "$PYTHON" {package}'
    done = installs(bare, words, told, PIP_RETRIES="1", UV_HTTP_RETRIES="0", FORCE_COLOR="1")
    assert done.returncode == 1
    assert "it does not say" not in done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: nothing could be installed: "), done.stderr
    assert reason in done.stderr
    assert done.stderr.endswith("the same command tries again\n")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the scripts need, as out of an archive, and a PATH with their tools and nothing else."""
    for folder in ("scripts", "data_prep"):
        shutil.copytree(REPO / folder, tmp_path / folder, copy_function=shutil.copyfile)
    for name in ("setup.py", "constraints.txt", "constraints-stock.txt"):
        shutil.copy(REPO / name, tmp_path)
    (tmp_path / "bin" / "scripts").mkdir(parents=True)
    for tool in TOOLS:
        found = shutil.which(tool)
        if found:
            (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def environment_of(
    checkout: Path,
    *before: str,
    words: Sequence[object] = ("scripts/demo.sh", "--quick"),
    **variables: str,
) -> subprocess.CompletedProcess:
    """Run a script, by default the first that needs an environment, in the checkout."""
    programs = str(checkout / "bin")  # where the shell finds another folder called scripts
    places = {"PATH": programs, "CDPATH": programs, "HOME": str(checkout)}
    given = [*before, "bash", *words]
    return untold(given, checkout, **places, PYENV_ROOT=str(checkout), **variables)


def python_with(checkout: Path, changes: str) -> None:
    """Put an interpreter of the main host on the PATH, in which some lines have run."""
    (checkout / "changes").mkdir()
    lines = f"import sys\nsys.version_info = (3, 11, 1)\n{changes}\n"
    (checkout / "changes" / "sitecustomize.py").write_text(lines, "utf-8")
    text = f'#!/bin/sh\nPYTHONPATH="{checkout}/changes" exec "{sys.executable}" "$@"\n'
    executable(checkout / "bin" / "python3", text)


@pytest.mark.parametrize(
    ("changes", "reason", "given"),
    [
        ("", "there is none on PATH (no python3); install one", None),
        ("sys.version_info = (3, 8, 1)", "there is none on PATH", "is not Python 3.9 to 3.14"),
        ("sys.version_info = (3, 15, 0)", "there is none on PATH", "is not Python 3.9 to 3.14"),
        ("sys.modules['ensurepip'] = None", "python3 has no venv with ensurepip; install it", None),
        ("sys.modules['torch'] = None", None, "has no torch"),
    ],
    ids=["none", "too old", "too new", "no venv", "nothing installed"],
)
def test_a_python_that_cannot_serve_or_run_the_project_is_one_line(
    changes: str, reason: Optional[str], given: Optional[str], checkout: Path
) -> None:
    """As the one that is found, of which an environment would be made, and by PYTHON."""
    if changes:
        python_with(checkout, changes)
    if reason:
        done = environment_of(checkout)
        is_refusal(done.returncode, done.stderr, reason, status=1)
    if given:
        words, python = ["scripts/run_multi30k.sh", "--dry-run"], str(checkout / "bin" / "python3")
        done = environment_of(checkout, words=words, PYTHON=python)
        is_refusal(done.returncode, done.stderr, f"PYTHON={python} {given}; name", status=1)
    assert not list(checkout.glob(".venv*"))


SCRIPTS = sorted(
    f"{folder}/{path.name}"
    for folder in ("scripts", "data_prep")
    for path in (REPO / folder).glob("*.sh")
    if path.read_text("utf-8").startswith("#!")
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_help_and_installs_nothing(name: str, checkout: Path) -> None:
    """By a link to a checkout without an environment, where neither Python nor apt-get is found."""
    (checkout / "link").symlink_to(checkout / name)
    before = {*checkout.rglob("*")}
    (checkout / "capsnmt").symlink_to(PLUGIN)
    done = environment_of(checkout, words=["link", "--help"], PYTHON=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") > 2, done.stdout
    assert {*checkout.rglob("*")} == {*before, checkout / "capsnmt"}


def complete(checkout: Path, host: str = "") -> None:
    """Give the checkout an environment that has all; its programs say how they are called.

    None goes with what another Python was told, and the machine has 41 cores.
    """
    stamp = ran(["bash", "-c", f"cat setup.py constraints{host}.txt | cksum"], checkout).stdout
    programs = checkout / f".venv{host}" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "installed").write_text(f"{stamp}fairseq,demo,dev\n", "utf-8")
    ours = 'case "$PYTHONHOME$PYTHONPATH" in *elsewhere*) exit 9 ;; esac\n'
    ours += '[ "$2" != capsnmt.machine ] || { echo 41 && exit; }'
    for name in ("python", "ruff", "shellcheck", "shfmt"):
        executable(programs / name, f'#!/bin/sh\n{ours}\necho "{name} $*"\n')


def test_the_checks_take_the_cores_that_they_have_and_need_no_git(checkout: Path) -> None:
    """Programs of an environment that was moved run what is in the old place, which is said.

    A program that chmod leaves as it is stands for a temporary folder that lets none run.
    """
    complete(checkout)
    (checkout / "bin" / "chmod").unlink()
    executable(checkout / "bin" / "chmod", "#!/bin/sh\n")
    (checkout / ".venv" / "setup.cfg").write_text("[egg_info]\negg_base=/old/.venv\n", "utf-8")
    done = environment_of(checkout, words=["scripts/test.sh"])
    is_refusal(done.returncode, done.stderr, "was made as /old/.venv", "remove it", status=0)
    for found in ("python -m mypy\n", "scripts/flags.sh", " -n 42 "):
        assert found in done.stdout
    assert (checkout / ".venv" / "tmp").is_dir()


def test_the_cores_of_a_container_are_those_that_its_time_suffices_for(tmp_path: Path) -> None:
    """Of a node with 64, docker run --cpus 2 shows all: 65 processes of tests need its memory."""
    limit = tmp_path / "cpu.max"
    found = [cores(limit)]
    for text in ("max 100000", "99999999 100000", "20000 100000"):
        limit.write_text(f"{text}\n", "utf-8")
        found.append(cores(limit))
    assert found == [found[0]] * 3 + [1]


def test_the_demo_goes_on_in_its_environment_where_its_python_is_no_longer_found(
    checkout: Path,
) -> None:
    """As without the modules of a cluster that the first start had, or with another Python's."""
    complete(checkout)
    python_with(checkout, "sys.version_info = (3, 10, 1)")
    words = ["scripts/demo.sh", "--quick", "--output", checkout]
    of_another = {"PYTHONHOME": "/elsewhere", "PYTHONPATH": "/elsewhere"}
    done = environment_of(checkout, words=words, **of_another)
    assert (done.returncode, done.stderr) == (0, "")
    assert "== installing" not in done.stdout
    assert "python -m capsnmt.report" in done.stdout


@pytest.mark.parametrize("words", [("scripts/demo.sh", "--quick"), ("scripts/test.sh",)])
def test_the_first_commands_take_the_host_that_the_machine_has(
    words: Sequence[str], checkout: Path
) -> None:
    """As README says: Python 3.10 is enough for both, also beside an environment of the user's."""
    complete(checkout, "-stock")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    executable(checkout / ".venv" / "bin" / "python", "#!/bin/sh\nexit 1\n")
    python_with(checkout, "sys.version_info = (3, 10, 1)")
    done = environment_of(checkout, words=[*words, "--output", checkout])
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m" in done.stdout


def test_an_environment_of_the_user_is_not_replaced(checkout: Path) -> None:
    """Also of a name that is as usual as .venv; it may be active."""
    python_with(checkout, "")
    for name in (".venv", ".venv-stock"):
        (checkout / name / "bin").mkdir(parents=True)
        executable(checkout / name / "bin" / "python", "#!/bin/sh\n")
    done = environment_of(checkout)
    is_refusal(done.returncode, done.stderr, "was not made by these scripts", "move", status=1)
    assert len([*checkout.glob(".venv*/bin/python")]) == 2


def test_an_environment_is_made_by_the_python_of_an_active_one(bare: Path) -> None:
    """The active one may be that which is made anew: its own Python would be gone.

    A service of the system has no HOME.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    text = '. "$1"; find_python "$2"'
    without = ["env", "-u", "HOME", "-u", "PYENV_ROOT", "bash", "-euc", text, "-"]
    given = [*without, REPO / "scripts" / "venv.sh", version]
    done = ran(given, PATH=f"{bare.parent}{os.pathsep}{os.environ['PATH']}")
    assert done.stdout == f"{os.path.realpath(sys.executable)}\n"


# files of at most 40 KiB stand for a full disk
FULL = ("bash", "-c", 'ulimit -f 40; exec "$@"', "-")


def test_an_environment_that_cannot_be_made_or_removed_is_one_line_and_made_again(
    checkout: Path,
) -> None:
    """As on a full disk, or where it is another user's: rm says so of each of its files."""
    python_with(checkout, "")
    for _ in range(2):
        done = environment_of(checkout, *FULL)
        is_refusal(done.returncode, done.stderr, ".venv cannot be made: ", status=1)
    (checkout / "bin" / "rm").unlink()
    last = "rm: cannot remove 'two': Permission denied"
    executable(checkout / "bin" / "rm", f'#!/bin/sh\necho one >&2; echo "{last}" >&2; exit 1\n')
    done = environment_of(checkout)
    is_refusal(done.returncode, done.stderr, f".venv cannot be made: {last}", status=1)


def test_an_environment_that_cannot_be_renewed_stays(checkout: Path) -> None:
    """As without a network, or killed: then the next start gives it back."""
    complete(checkout)
    python_with(checkout, "")
    with (checkout / "setup.py").open("a", encoding="utf-8") as file:
        file.write("# another dependency\n")
    environment = checkout / ".venv"
    for killed in (False, True):
        if killed:
            environment.rename(checkout / ".venv.old")
            environment.mkdir()
        done = environment_of(checkout, *FULL)
        is_refusal(done.returncode, done.stderr, ".venv cannot be made: ", status=1)
        assert ran([environment / "bin" / "ruff", "check"]).stdout == "ruff check\n"
        assert [*checkout.glob(".venv*")] == [environment]


@pytest.mark.parametrize(
    ("python", "compiler", "reason"),
    [
        ("bin/python3", "none-such", "no C++ compiler (none-such) on PATH"),
        ("no_headers", "sh", "Python.h"),
        ("no_headers", "sh -c", "Python.h"),
    ],
)
def test_what_a_build_lacks_is_one_line(
    python: str, compiler: str, reason: str, tmp_path: Path
) -> None:
    """fairseq has no wheel for Python 3.10 either."""
    (tmp_path / "bin").mkdir()
    python_with(tmp_path, "sys.version_info = (3, 10, 1)")
    executable(tmp_path / "no_headers", "#!/bin/sh\necho /nowhere\n")
    text = '. "$1"; PYTHON=$2; install_project "$2" fairseq'
    given = ["bash", "-c", text, "-", REPO / "scripts" / "venv.sh", tmp_path / python]
    done = ran(given, CXX=compiler)
    is_refusal(done.returncode, done.stderr, reason, "install", status=1)

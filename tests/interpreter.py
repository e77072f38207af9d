"""Command lines as processes that start at once: forks of a server that has imported fairseq.

The server (:mod:`tests.forked`) has imported nothing of the project: every command runs as in a
fresh interpreter. Commands of the package start others with ``sys.executable``: here that is a
small program that passes its arguments, folder, variables and streams to the server, and then the
signals that it gets, and waits.
"""

import atexit
import functools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Dict, List, Optional, Sequence

PYTHON = sys.executable  # which a test may replace
SERVER = "CAPSNMT_TESTS_SERVER"
# for a shell, which finds an interpreter in a folder with spaces, and for Python
PROGRAM = """#!/bin/sh
'''exec' {python} -IS "$0" "$@"
'''
import json, os, signal, socket, sys
passed_on = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
with socket.socket(socket.AF_UNIX) as server:
    try:
        server.connect(os.environ["{server}"])
    except ConnectionRefusedError:  # the server has been killed: a fresh interpreter does the same
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    request = json.dumps([sys.argv, os.getcwd(), dict(os.environ), []]).encode()
    socket.send_fds(server, [b"%10d" % len(request)], [0, 1, 2])
    server.sendall(request)
    started = int(server.recv(16, socket.MSG_WAITALL) or 0)
    for each in passed_on:
        signal.signal(each, lambda signum, _: os.kill(started, signum))
    status = int(server.recv(16) or -9)
if status < 0:
    for each in passed_on:
        signal.signal(each, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
ROOT = Path(__file__).resolve().parents[1]
# command -> module:function, as pip installs it
COMMANDS: Dict[str, str] = dict(
    re.findall(r'"(capsnmt-\w+) = (\S+)"', (ROOT / "setup.py").read_text("utf-8"))
)


def executable(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


def environment() -> Dict[str, str]:
    """Return our environment with safe loading, one thread, and the checkout on the path.

    It is that of a user: outside of pytest, and of a job of SLURM. Scripts take our interpreter.
    """
    ours = ("TORCH_FORCE", "PYTEST", "SLURM", "PYTHONWARNINGS")
    own = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {**own, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHON": PYTHON}


def ran(
    words: Sequence[object], cwd: Optional[Path] = None, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess:
    """Run a program by itself, with further variables; return it with its output as text."""
    return subprocess.run(
        [str(word) for word in words],
        input=stdin,
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",  # it may print the name of a path of any bytes
        check=False,
    )


FAIRSEQ = ("train", "generate", "interactive", "validate", "preprocess")


def words(command: str) -> List[str]:
    """Return the arguments of the interpreter that run ``capsnmt-NAME`` or ``fairseq-NAME``."""
    return ["-m", COMMANDS.get(command) or command.replace("fairseq-", "fairseq_cli.")]


servers = ExitStack()
atexit.register(servers.close)


def server() -> str:
    """Return the address of the server, which is started if there is none."""
    if SERVER not in os.environ:
        # the address of a socket has at most 107 bytes, which the temporary folder may exceed
        short = len(os.fsencode(gettempdir())) < 80
        folder = Path(servers.enter_context(TemporaryDirectory(dir=None if short else "/tmp")))
        address, log = folder / "server", folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [PYTHON, "-m", "tests.forked", str(address)],
                env=environment(),
                stdin=subprocess.PIPE,  # it ends with us
                stdout=output,
                stderr=output,
            )
        servers.callback(os.environ.pop, SERVER, None)
        servers.enter_context(process)
        while not address.exists():
            assert process.poll() is None, log.read_text("utf-8")
            time.sleep(0.01)
        os.environ[SERVER] = str(address)
    return os.environ[SERVER]


def programs(folder: Path) -> Path:
    """Write the interpreter and every command into ``bin`` of a folder; return the interpreter."""
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    texts = {python.name: PROGRAM.format(python=shlex.quote(PYTHON), server=SERVER)}
    for name in (*COMMANDS, *(f"fairseq-{each}" for each in FAIRSEQ)):
        texts[name] = f'#!/bin/sh\nexec {shlex.quote(str(python))} {" ".join(words(name))} "$@"\n'
    for name, text in texts.items():  # others may do the same
        part = executable(python.with_name(f"{name}-{os.getpid()}"), text)
        part.rename(python.with_name(name))
    server()
    return python


@functools.cache
def interpreter() -> Path:
    """Return an interpreter that starts at once, for commands that start others."""
    return programs(Path(servers.enter_context(TemporaryDirectory())))


class Process:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._status: Optional[int] = None
        self.pid = int(connection.recv(16, socket.MSG_WAITALL))

    def join(self, timeout: Optional[float] = None) -> None:
        """Wait for its end, at most so many seconds."""
        if self._status is None:
            self._connection.settimeout(timeout)
            with suppress(socket.timeout, BlockingIOError):
                self._status = int(self._connection.recv(16) or -signal.SIGKILL)
                self._connection.close()

    @property
    def exitcode(self) -> Optional[int]:
        """Its exit status, the negative signal that ended it, or none while it runs."""
        self.join(0)
        return self._status

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGKILL)


def start(
    module: str, arguments: List[str], environment: Dict[str, str], streams: List[Path]
) -> Process:
    """Start ``python -m module arguments`` with files as its input, output and errors."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server())
    line = [PYTHON, "-m", module, *arguments]
    request = json.dumps([line, os.getcwd(), environment, [*map(str, streams)]]).encode()
    connection.sendall(b"%10d%b" % (len(request), request))
    return Process(connection)

"""An interpreter that starts at once: what it is asked to run is forked from a warm process.

Commands of the package start other commands with ``sys.executable``. Here that is a small program
that passes its arguments, folder, variables and streams to a server, and then the signals that it
gets, and waits. The server has imported fairseq, and nothing of the project: every command runs as
in a fresh interpreter.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

from tests import forked

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys
passed_on = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
with socket.socket(socket.AF_UNIX) as server:
    try:
        server.connect(os.environ["{server}"])
    except ConnectionRefusedError:  # the server has been killed: a fresh interpreter does the same
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
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


def environment() -> Dict[str, str]:
    """Return our environment with safe loading, one thread, and the checkout on the path."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_FORCE")}
    return {**own, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def ran(
    words: Sequence[object], cwd: Optional[Path] = None, **variables: str
) -> subprocess.CompletedProcess:
    """Run a program by itself, with further variables; return it with its output as text."""
    return subprocess.run(
        [str(word) for word in words],
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


@contextmanager
def serving(folder: Path, environment: Dict[str, str]) -> Iterator[Path]:
    """Start the server; yield the interpreter, which is in a folder with every command."""
    python = folder / "bin" / "python"
    # one process may have several servers
    variable = f"CAPSNMT_SERVER_{zlib.crc32(bytes(folder))}"
    if not python.exists():
        python.parent.mkdir(exist_ok=True)
        part = python.with_name(f"part-{os.getpid()}")
        part.write_text(PROGRAM.format(python=sys.executable, server=variable), "utf-8")
        part.chmod(0o755)
        part.rename(python)
        for name in (*COMMANDS, *(f"fairseq-{each}" for each in FAIRSEQ)):
            program = python.with_name(name)
            program.write_text(f'#!/bin/sh\nexec {python} {" ".join(words(name))} "$@"\n', "utf-8")
            program.chmod(0o755)
    address, log = folder / f"server-{os.getpid()}", folder / f"server-{os.getpid()}.log"
    log.touch()
    streams = [Path(os.devnull), log, log]
    server = forked.start("tests.interpreter", [str(address)], environment, streams)
    os.environ[variable] = str(address)
    try:
        while not address.exists():
            assert server.is_alive(), log.read_text("utf-8")
            time.sleep(0.02)
        yield python
    finally:
        del os.environ[variable]
        server.kill()
        server.join()
        # or the next server of this process would be called before it listens
        address.unlink(missing_ok=True)


def _serve(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.part")
        listener.listen(64)
        os.rename(f"{address}.part", address)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                connection.sendall(b"%d" % _answer(connection))
                os._exit(0)
            connection.close()


def _answer(connection: socket.socket) -> int:
    size, streams, _, _ = socket.recv_fds(connection, 10, 3)
    request = connection.recv(int(size), socket.MSG_WAITALL)
    command = multiprocessing.get_context("fork").Process(target=_run, args=(request, streams))
    command.start()
    connection.sendall(b"%16d" % (command.pid or 0))
    command.join()
    assert command.exitcode is not None
    return command.exitcode


def _run(request: bytes, streams: List[int]) -> None:
    (sys.executable, *arguments), folder, environment = json.loads(request)
    os.chdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _, module, *arguments = arguments[arguments.index("-m") :]  # torchrun gives -u as well
    forked.become(module, arguments, environment)


if __name__ == "__main__":
    _serve(sys.argv[1])

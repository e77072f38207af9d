"""A program in a session of its own: its output line by line, and how it is stopped.

A stop signal to this process is passed on; the program ends first, then this process. If this
process is killed, the program goes on, and holds the lock that it has inherited.
"""

import os
import signal
import subprocess
import sys
import sysconfig
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, TextIO

from capsnmt.cli import ConfigurationError, Stopped

# SIGUSR1 comes from SLURM, shortly before the time of a job ends.
STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
    STOPPING.add(signal.SIGHUP)
# Whatever the locale, children read and write UTF-8; fairseq saves checkpoints inside an assert.
INTERPRETER = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",
    "PYTHONIOENCODING": "",
    "PYTHONOPTIMIZE": "",
}


def package_path() -> Dict[str, str]:
    """Return the variables by which ``python -m`` imports this package in a child.

    An installed package needs no path, and its folder could hide modules of the standard library.
    Files in the working folder, such as ``random.py``, still could up to Python 3.10.
    """
    package = Path(__file__).parent
    here = Path(package.name)
    variables = {"PYTHONSAFEPATH": "1"}
    hidden = (here / "__init__.py").exists() and not here.samefile(package)
    if hidden and sys.version_info < (3, 11):
        raise ConfigurationError(
            f"./{here} hides the package {package}, which runs; run the command in another folder, "
            f"or with Python 3.11 or later"
        )
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    if package.parent.resolve() not in installed:
        folders = [str(package.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        variables["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))
    return variables


def _end(signum: int) -> None:
    raise Stopped(signum)


@contextmanager
def stoppable(stop: Callable[[int], Any] = _end) -> Iterator[None]:
    """Call ``stop`` if a stop signal arrives inside the block; by default, `Stopped` is raised.

    After SIGHUP there is no terminal to print to, which would raise an error.
    """
    terminals = [number for number in (1, 2) if os.isatty(number)]

    def handle(signum: int, _: Optional[FrameType]) -> None:
        if signum == signal.SIGHUP:
            for terminal in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        stop(signum)

    before = {each: signal.signal(each, handle) for each in STOPPING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    errors: Optional[TextIO] = None,
    lock: Optional[int] = None,
    ask: Optional[Callable[[], Any]] = None,
) -> int:
    """Run a program, pass every line of its output to ``on_line``, and return its exit status.

    Standard error goes to ``errors``, or into the output. The child inherits the descriptor
    ``lock``, so that it holds the lock while it runs. After a stop signal the child has ended when
    `Stopped` is raised; ``ask`` asks it to end without a signal, inside a signal handler.
    """
    received: List[int] = []
    process: Optional[subprocess.Popen[str]] = None

    def stop(signum: int) -> None:
        """Ask the child to end, or pass the signal on; a second signal kills it.

        SIGUSR1 becomes SIGTERM, which every program expects.
        """
        received.append(signum)
        if process is None:  # it is being started, and stopped then
            return
        first = len(received) == 1
        if first and ask is not None:
            ask()
            return
        polite = signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM
        with suppress(ProcessLookupError):
            os.killpg(process.pid, polite if first else signal.SIGKILL)

    with stoppable(stop):
        sys.stdout.flush()
        with subprocess.Popen(
            argv,
            env={**os.environ, **environment, **INTERPRETER},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors is None else errors,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        ) as process:
            if received:  # it has done nothing yet
                stop(received.pop())
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    on_line(line)
                process.wait()
            except BaseException:  # an error in on_line must not leave the child running
                stop(signal.SIGTERM)
                raise
        if received:
            raise Stopped(received[0])
        return process.returncode

"""Child processes that end with this one; their output is read line by line."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, TextIO

# SIGUSR1 comes from SLURM, shortly before the time of a job ends.
ASKING = {signal.SIGTERM, signal.SIGUSR1}
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
    ASKING.add(signal.SIGHUP)
STOPPING = {signal.SIGINT, *ASKING}
GRACE_SECONDS = 30
# Long enough for a large model to finish its update and save; SLURM gives two minutes.
ASKED_SECONDS = 90
PR_SET_PDEATHSIG = 1
# Whatever the locale, children read and write UTF-8; fairseq saves checkpoints inside an assert.
INTERPRETER = {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1", "PYTHONOPTIMIZE": ""}


class Stopped(Exception):  # noqa: N818  it is not an error
    """A stop signal arrived; the child has ended."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum, self.status = signum, 128 + signum


class _Child:
    """The running child, and how to stop it."""

    process: Optional[subprocess.Popen[str]] = None
    signum = 0

    def __init__(self, ask: Optional[Callable[[], bool]] = None) -> None:
        self.ask = ask
        self.sent = False
        self.terminals = [number for number in (1, 2) if os.isatty(number)]

    def stop(self, signum: int, _: Optional[FrameType] = None) -> None:
        """Ask the child to end, or pass the signal on; a second signal or a timeout kills.

        The signal goes to the child's process group. SIGUSR1 becomes SIGTERM, which every program
        expects. After SIGHUP there is no terminal to print to, which would raise an error.
        """
        if signum == signal.SIGHUP:
            for terminal in self.terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        if self.process is None:
            raise Stopped(signum)
        first, self.signum = not self.signum, self.signum or signum
        if first and self.ask is not None and self.ask():
            signal.alarm(ASKED_SECONDS)
            return
        polite = signal.SIGINT if self.signum == signal.SIGINT else signal.SIGTERM
        signal.alarm(GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL if self.sent else polite)
        self.sent = True


@contextmanager
def stoppable(ask: Optional[Callable[[], bool]] = None) -> Iterator[_Child]:
    """Handle stop signals inside the block: the child ends first, then this process."""
    child = _Child(ask)
    signals = (*STOPPING, signal.SIGALRM)
    before = {signum: signal.signal(signum, child.stop) for signum in signals}
    try:
        yield child
    finally:
        signal.alarm(0)
        for signum, handler in before.items():
            signal.signal(signum, handler)


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    errors: Optional[TextIO] = None,
    lock: Optional[int] = None,
    ask: Optional[Callable[[], bool]] = None,
) -> int:
    """Run a program and pass every line of its output to ``on_line``.

    Args:
        argv: the program and its arguments; no shell is involved.
        environment: variables to set in addition to those of this process.
        on_line: called with each line of standard output, its newline included.
        errors: where standard error goes; ``None`` merges it into the output.
        lock: a descriptor that the child inherits, so that it holds the lock while it runs.
        ask: asks the child to end without a signal, and returns whether that is possible. It runs
            inside a signal handler.

    Returns:
        The exit status; negative for a signal.

    Raises:
        Stopped: a stop signal arrived; the child has ended.
    """
    variables: Dict[str, str] = {**os.environ, **environment, **INTERPRETER}
    with stoppable(ask) as child:
        sys.stdout.flush()
        options: Dict[str, Any] = {"pass_fds": () if lock is None else (lock,)}
        with subprocess.Popen(
            argv,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors is None else errors,
            encoding="utf-8",
            errors="surrogateescape",
            preexec_fn=_leads_group(os.getpid(), argv[0]),
            **options,
        ) as process:
            child.process = process
            assert process.stdout is not None
            try:
                with _guarded(process.pid, _last_signal(argv[0])):
                    for line in process.stdout:
                        on_line(line)
                    process.wait()
            except BaseException:  # an error in on_line must not leave the child running
                child.stop(signal.SIGTERM)
                raise
        if child.signum:
            raise Stopped(child.signum)
        return process.returncode


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent(signum: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent ends.

    **D**: SIGKILL. Python can lose a SIGINT, for example during an import, and a training saves at
    SIGTERM: nobody reads its log any more, so the log would lack the updates since the last save.
    """
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signum)


def _last_signal(program: str) -> int:
    """Return the signal that ends the child of a killed launcher."""
    # srun passes SIGTERM on to its tasks, which may run on other machines.
    return signal.SIGTERM if program == "srun" else signal.SIGKILL


def _leads_group(parent: int, program: str) -> Callable[[], None]:
    """Return the function that makes a child lead a process group and end with the launcher.

    It runs between fork and exec, in a process whose parent has torch's threads: it must import
    nothing and take no lock.
    """

    def attach() -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        # otherwise its workers would inherit a blocked SIGTERM and never end
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        end_with_parent(_last_signal(program))
        if os.getppid() != parent:
            os._exit(1)

    return attach


@contextmanager
def _guarded(group: int, signum: int) -> Iterator[None]:
    """Let a process group end if this process is killed inside the block.

    The kernel signals only the direct child. What that has started, such as the workers that load
    data, would live on for seconds. A fork of this process, the guard, waits on a pipe that is
    closed when this process ends, and then signals the whole group.
    """
    waits, lives = os.pipe()
    guard = os.fork()
    if guard == 0:
        _guard(waits, lives, group, signum)
    os.close(waits)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):  # somebody has killed the guard
            os.write(lives, b"done")
        os.close(lives)
        os.waitpid(guard, 0)


def _guard(waits: int, lives: int, group: int, signum: int) -> None:
    """Wait until the pipe is closed, signal the group unless all is done, and end."""
    try:
        os.setpgid(0, 0)  # Ctrl-C is not for it
        os.close(lives)
        if not os.read(waits, 1):
            os.killpg(group, signum)
    finally:
        os._exit(0)

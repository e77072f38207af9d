"""Child processes that end with us, whose output we see line by line."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, TextIO

STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 30
PR_SET_PDEATHSIG = 1


class Stopped(Exception):  # noqa: N818  it is no error
    """The user, or the machine, asked to stop; the child has ended."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.status = 128 + signum


class _Child:
    """The running child and what stops it. Signals are held while there is none to tell."""

    process: Optional[subprocess.Popen[str]] = None
    signum = 0

    def stop(self, signum: int, _: Optional[FrameType] = None) -> None:
        """Pass a signal on to the child's process group; the second one, or patience, kills."""
        if self.process is None:
            raise Stopped(signum)
        sent = signal.SIGKILL if self.signum else signum
        self.signum = self.signum or signum
        signal.alarm(GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, sent)


@contextmanager
def stoppable() -> Iterator[_Child]:
    """Handle Ctrl-C and SIGTERM for the time of the block: the child gets them, then we end."""
    child = _Child()
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
) -> int:
    """Run a program to its end and hand every line of its output to ``on_line``.

    Args:
        argv: the program and its arguments; no shell is involved.
        environment: variables to set beside ours.
        on_line: called with each line of standard output, its newline included.
        errors: where standard error goes; into the same lines when ``None``.
        lock: a descriptor the child inherits, so that it holds the lock as long as it lives.

    Returns:
        the exit status; negative for a signal.

    Raises:
        Stopped: SIGINT or SIGTERM came; the child got it and has ended.
    """
    variables: Dict[str, str] = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    with stoppable() as child:
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
            preexec_fn=_ends_with(os.getpid()),
            **options,
        ) as process:
            child.process = process
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    on_line(line)
                process.wait()
            except BaseException:  # what on_line raised must not leave the child running
                child.stop(signal.SIGTERM)
                raise
        if child.signum:
            raise Stopped(child.signum)
        return process.returncode


_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _ends_with(parent: int) -> Callable[[], None]:
    """What the child does first: lead its own process group, and end when the launcher does."""

    def attach() -> None:
        os.setpgid(0, 0)
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return attach

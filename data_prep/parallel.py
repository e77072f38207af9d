"""A function over the lines of a stream, on several cores, in order and in bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

LineFunction = Callable[[str], str]
CHUNK = 1000

_function: LineFunction


def _end_with(parent: int) -> None:
    # A parent killed with SIGKILL cannot stop its pool; orphans would wait for work for ever.
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _start(make: Callable[..., LineFunction], arguments: tuple, parent: int) -> None:
    # Ctrl-C reaches the whole group; the parent alone answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _function
    _function = make(*arguments)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _apply(lines: list[str]) -> list[str]:
    return [_function(line) for line in lines]


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    return iter(lambda: list(islice(iterator, CHUNK)), [])


def map_lines(
    make: Callable[..., LineFunction], arguments: tuple, lines: Iterable[str], workers: int
) -> Iterator[str]:
    """Yield ``make(*arguments)(line)`` for every line, in the order of `lines`.

    Args:
        make: a module-level function; each worker calls it once, so that models and tables
            need not travel between processes.
        arguments: what `make` is called with.
        lines: the stream.
        workers: processes; 1 stays in this one.
    """
    if workers == 1:
        function = make(*arguments)
        for line in lines:
            yield function(line)
        return
    with multiprocessing.Pool(workers, _start, (make, arguments, os.getpid())) as pool:
        for chunk in pool.imap(_apply, _chunks(lines)):
            yield from chunk

"""Apply a function to many items on several cores, in order and in bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from capsnmt.cli import ExecutionError

CHUNKS_A_WORKER = 8  # in progress at any time

_function: Callable[[], Callable[[Any], Any]]


def _end_with(parent: Connection) -> None:
    # It never sends anything, but closes its end of the pipe, at the latest when it is killed.
    parent.poll(None)
    os._exit(1)


def _start(
    make: Callable[..., Callable[[Any], Any]],
    arguments: tuple,
    parent: Connection,
    others: Connection,
) -> None:
    # Ctrl-C reaches the process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    others.close()  # otherwise this copy would keep the pipe open
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    global _function
    _function = cache(lambda: make(*arguments))  # called by the first item, whose error is reported


def _apply(item: Any) -> Any:
    return _function()(item)


def map_items(
    make: Callable[..., Callable[[Any], Any]],
    arguments: tuple,
    items: Sequence[Any],
    workers: int,
) -> Iterator[Any]:
    """Yield ``make(*arguments)(item)`` for every item, in the order of ``items``.

    Args:
        make: a module-level function; each worker calls it once, so that models and tables
            need not be sent between processes.
        arguments: the arguments of ``make``.
        items: the items; only a few for each worker are started before they are consumed.
        workers: number of processes, at most one for each item; 1 uses this process.

    Raises:
        ExecutionError: a worker was killed.
    """
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(make(*arguments), items)
        return
    parent, alive = multiprocessing.Pipe(duplex=False)
    initial = (make, arguments, parent, alive)
    with parent, alive, ProcessPoolExecutor(workers, None, _start, initial) as pool:
        begun: deque[Future[Any]] = deque()
        try:
            for item in items:
                begun.append(pool.submit(_apply, item))
                if len(begun) == workers * CHUNKS_A_WORKER:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        except BrokenProcessPool:
            raise ExecutionError(
                f"one of {workers} workers was killed, perhaps because memory is short: the same "
                f"command resumes; fewer --workers need less memory"
            ) from None
        except BaseException:  # an item's error, or Ctrl-C
            alive.close()  # the workers end, also in the middle of an item
            raise

"""Apply a function to many items on several cores, in order and in bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CHUNKS_A_WORKER = 8  # in progress at any time

_function: Callable[[Any], Any]


def _end_with(parent: int) -> None:
    # A parent killed with SIGKILL cannot stop its pool; orphans would wait for work forever.
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _start(make: Callable[..., Callable[[Any], Any]], arguments: tuple, parent: int) -> None:
    # Ctrl-C reaches the process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    global _function
    _function = make(*arguments)


def _apply(item: Any) -> Any:
    return _function(item)


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
    """
    workers = min(workers, len(items))
    if workers <= 1:
        yield from map(make(*arguments), items)
        return
    room = threading.Semaphore(workers * CHUNKS_A_WORKER)
    stopped = threading.Event()

    def offered() -> Iterator[Any]:
        # The pool would start all items at once and keep every result until it is consumed.
        for item in items:
            while not room.acquire(timeout=0.1):
                if stopped.is_set():
                    return
            yield item

    with multiprocessing.Pool(workers, _start, (make, arguments, os.getpid())) as pool:
        try:
            for result in pool.imap(_apply, offered()):
                room.release()
                yield result
        finally:
            stopped.set()

"""Apply a function to the chunks of a text on several cores, in order and in bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Callable, Deque, Iterable, Iterator, Sequence, Tuple, TypeVar

from capsnmt.cli import ExecutionError

T = TypeVar("T")
LINES = 2000  # of a chunk: about 250 kB, a tenth of a second of tokenisation
JOBS_A_WORKER = 8  # in progress at any time


def read_chunks(*paths: Path) -> Iterator[Tuple[bytes, ...]]:
    """Yield the same lines of line-aligned files, `LINES` at a time."""
    with ExitStack() as stack:
        streams = [stack.enter_context(path.open("rb")) for path in paths]
        while any(chunk := tuple(b"".join(islice(stream, LINES)) for stream in streams)):
            yield chunk


def lines_of(chunk: bytes) -> list[str]:
    """Return the lines of a chunk, each without its end."""
    return chunk.decode("utf-8").split("\n")[:-1]


def chunk_of(lines: Iterable[str]) -> bytes:
    """Return lines as a chunk."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def with_progress(chunks: Iterable[T], label: str) -> Iterable[T]:
    """Yield ``chunks``; on a terminal, a bar counts their lines."""
    from tqdm import tqdm

    return tqdm(chunks, f"  {label}", unit=" lines", unit_scale=LINES, leave=False, disable=None)


def map_chunks(
    function: Callable[..., T], chunks: Iterator[Tuple[Any, ...]], workers: int
) -> Iterator[T]:
    """Yield ``function(*chunk)`` for every chunk of a text, in order.

    The first is this process's own: a short text needs no workers, and those of a long one inherit
    what the function has loaded.
    """
    yield from (function(*chunk) for chunk in islice(chunks, 1))
    yield from map_jobs(function, chunks, workers)


def map_jobs(
    function: Callable[..., T], jobs: Iterable[Tuple[Any, ...]], workers: int
) -> Iterator[T]:
    """Yield ``function(*job)`` for every job, in order.

    A job is taken only when a worker is about to need it. **D**: not joblib's generator, which
    starts all jobs however slowly its results are taken. One worker, or one job, needs only this
    process.
    """
    jobs = iter(jobs)
    first = [*islice(jobs, workers)]
    if len(first) < 2:
        yield from (function(*job) for job in chain(first, jobs))
        return
    free: SimpleQueue[Connection] = SimpleQueue()

    def done_by_a_worker(job: Tuple[Any, ...]) -> T:
        worker = free.get()
        try:
            worker.send(job)
            result, failure = worker.recv()
        except (EOFError, OSError):
            raise ExecutionError(
                f"one of {len(first)} workers was killed, perhaps because memory is short: the "
                f"same command resumes; fewer --workers need less memory"
            ) from None
        finally:
            free.put(worker)
        if failure:
            raise result from RuntimeError(failure)
        return result

    with ThreadPoolExecutor(len(first)) as threads, ExitStack() as started:
        for _ in first:
            free.put(started.enter_context(_worker(function)))
        begun: Deque[Future[T]] = deque()
        for job in chain(first, jobs):
            begun.append(threads.submit(done_by_a_worker, job))
            if len(begun) == len(first) * JOBS_A_WORKER:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def map_file(
    function: Callable[[bytes], bytes], read: Path, workers: int, written: Sequence[Path]
) -> None:
    """Apply a function to every chunk of a file, and write a file of the results."""
    with written[0].open("wb") as stream:
        chunks = map_chunks(function, read_chunks(read), workers)
        stream.writelines(with_progress(chunks, read.name))


@contextmanager
def _worker(function: Callable[..., T]) -> Iterator[Connection]:
    """Start a process that applies the function to what the connection sends.

    **D**: a pipe and a thread of ours for each, and not concurrent.futures: there all share a
    queue, and one that is killed while it writes a result leaves the others waiting for ever.
    """
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_work, args=(function, its), daemon=True)
    process.start()
    its.close()
    try:
        yield ours
    finally:  # after an error, or Ctrl-C: do not wait for what is in progress
        process.kill()
        process.join()


def _work(function: Callable[..., T], connection: Connection) -> None:
    # Ctrl-C reaches the process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        job = connection.recv()
        answer: Tuple[Any, str]
        try:
            answer = function(*job), ""
        except Exception as error:  # the parent raises it
            answer = error, traceback.format_exc()
        connection.send(answer)


def _end_with_parent() -> None:
    """End when the parent is killed: a worker would wait for ever, and hold the folder's lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

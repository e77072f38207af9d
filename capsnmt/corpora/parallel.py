"""Apply a function to the chunks of a text on several cores, in order and in bounded memory."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Deque, Iterable, Iterator, Sequence, Tuple, TypeVar

from capsnmt.cli import ExecutionError
from capsnmt.files import naming

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

    A job is taken only when a worker is about to need it. One worker, or one job, needs only this
    process, and a machine without semaphores (/dev/shm) has no other.

    **D**: jobs and results are files, and the queues of the pool have their names: a worker that is
    killed while it writes more than a pipe holds would leave the pool waiting for ever.
    """
    jobs = iter(jobs)
    first = [*islice(jobs, workers)]
    if len(first) < 2 or not _has_semaphores():
        yield from (function(*job) for job in chain(first, jobs))
        return
    begun: Deque[Future[Path]] = deque()

    def oldest() -> Any:
        file = begun.popleft().result()
        result = pickle.loads(file.read_bytes())
        file.unlink()
        return result

    others = {*multiprocessing.active_children()}
    with TemporaryDirectory() as folder, ProcessPoolExecutor(len(first), None, _begin) as pool:
        try:
            for number, job in enumerate(chain(first, jobs)):
                file = Path(folder, str(number))
                with naming(file):  # and not the result, whose disk may have room
                    file.write_bytes(pickle.dumps((function, job)))
                begun.append(pool.submit(_work, file))
                if len(begun) == len(first) * JOBS_A_WORKER:
                    yield oldest()
            while begun:
                yield oldest()
        except BrokenProcessPool:
            raise ExecutionError(
                f"one of {len(first)} workers was killed, perhaps because memory is short: the "
                f"same command resumes; fewer --workers need less memory"
            ) from None
        finally:  # after an error, or Ctrl-C: do not wait for what is in progress
            for worker in {*multiprocessing.active_children()} - others:
                worker.kill()


def _has_semaphores() -> bool:
    try:
        multiprocessing.Lock()
    except OSError:
        return False
    return True


def map_file(
    function: Callable[[bytes], bytes], read: Path, workers: int, written: Sequence[Path]
) -> None:
    """Apply a function to every chunk of a file, and write a file of the results."""
    with written[0].open("wb") as stream:
        chunks = map_chunks(function, read_chunks(read), workers)
        stream.writelines(with_progress(chunks, read.name))


def _begin() -> None:
    # Ctrl-C reaches the process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _work(file: Path) -> Path:
    function, job = pickle.loads(file.read_bytes())
    result = pickle.dumps(function(*job))
    with naming(file):
        file.write_bytes(result)
    return file


def _end_with_parent() -> None:
    """End when the parent is killed: a worker would wait for ever, and hold the folder's lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

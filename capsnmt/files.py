"""Files that are either whole or absent, and the lock of a run folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Optional, TextIO

from capsnmt.errors import ConfigurationError


def beside(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(path.name + ".part")


@contextmanager
def written_beside(path: Path) -> Iterator[TextIO]:
    """A text file that takes the place of ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(beside(path), "w", encoding="utf-8", errors="surrogateescape") as file:
        yield file
    os.replace(beside(path), path)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    with written_beside(path) as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        ConfigurationError: the file is missing or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except ValueError as error:
        raise ConfigurationError(f"{path}: not JSON ({error}): delete or restore it") from None


def sha256(path: Path) -> str:
    """The checksum of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def locked(
    path: Path, busy: str, patience: float = 10.0, waiting: Optional[str] = None
) -> Iterator[int]:
    """Hold the lock ``path``; a child that inherits the descriptor holds it, too, while it lives.

    A launcher that was killed leaves a child that needs a moment to end, hence the patience.

    Args:
        path: the lock file; made when absent.
        busy: what to say when somebody else holds it.
        patience: seconds to wait for it.
        waiting: what to say while waiting, if anything.

    Raises:
        ConfigurationError: it is still held after ``patience`` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigurationError(busy) from None
                if waiting is not None:
                    print(waiting, flush=True)
                    waiting = None
                time.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)

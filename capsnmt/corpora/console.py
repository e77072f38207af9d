"""Messages and progress: a bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Print a message to standard error, without breaking a progress bar."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
    sys.stderr.flush()


def watched(
    items: Iterable[T], label: str, unit: str = "lines", size: Callable[[T], int] = lambda item: 1
) -> Iterator[T]:
    """Yield ``items`` and show how many were consumed; each counts for ``size(item)``."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        with tqdm(desc=f"  {label}", unit=f" {unit}", unit_scale=True, leave=False) as bar:
            for item in items:
                yield item
                bar.update(size(item))
        return
    due = time.monotonic() + SECONDS_BETWEEN_LINES
    count = 0
    for item in items:
        yield item
        count += size(item)
        if time.monotonic() >= due:
            say(f"  {label}: {count:,} {unit}")
            due = time.monotonic() + SECONDS_BETWEEN_LINES


def watched_bytes(blocks: Iterable[bytes], start: int, total: int | None) -> Iterator[bytes]:
    """Yield ``blocks`` and show how many bytes of ``total`` have arrived, starting at ``start``."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        units = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "leave": False}
        with tqdm(total=total, initial=start, desc="  fetch", **units) as bar:  # type: ignore[call-overload]
            for block in blocks:
                yield block
                bar.update(len(block))
        return
    due = time.monotonic() + SECONDS_BETWEEN_LINES
    for block in blocks:
        yield block
        start += len(block)
        if time.monotonic() >= due:
            say(f"  fetched {start:,} of {f'{total:,}' if total else 'unknown'} bytes")
            due = time.monotonic() + SECONDS_BETWEEN_LINES

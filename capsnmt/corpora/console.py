"""Messages and progress: a bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from typing import Callable, Iterable, Iterator, Optional, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Print a message to standard error, without breaking a progress bar."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
    sys.stderr.flush()


def watched(
    items: Iterable[T],
    label: str,
    unit: str,
    size: Callable[[T], int],
    start: int = 0,
    total: Optional[int] = None,
) -> Iterator[T]:
    """Yield ``items``, and show how many units of ``total`` have been consumed since ``start``."""
    from tqdm import tqdm

    shown = sys.stderr.isatty()
    due, count = time.monotonic() + SECONDS_BETWEEN_LINES, start
    with tqdm(
        desc=f"  {label}",
        unit=unit,
        unit_scale=True,
        leave=False,
        initial=start,
        total=total,
        disable=not shown,
    ) as bar:
        for item in items:
            yield item
            bar.update(size(item))
            count += size(item)
            if not shown and time.monotonic() >= due:
                say(f"  {label}: {count:,}{f' of {total:,}' if total else ''} {unit}")
                due = time.monotonic() + SECONDS_BETWEEN_LINES

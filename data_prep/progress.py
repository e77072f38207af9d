"""Progress: a bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Tell the user something, beside whatever the program's output is."""
    tqdm.write(message, file=sys.stderr)
    sys.stderr.flush()


def watched(items: Iterable[T], label: str, unit: str = "lines") -> Iterator[T]:
    """Yield `items`, showing how many have gone by."""
    if sys.stderr.isatty():
        yield from tqdm(items, desc=f"  {label}", unit=f" {unit}", unit_scale=True, leave=False)
        return
    due = time.monotonic() + SECONDS_BETWEEN_LINES
    for count, item in enumerate(items, 1):
        yield item
        if time.monotonic() >= due:
            say(f"  {label}: {count:,} {unit}")
            due = time.monotonic() + SECONDS_BETWEEN_LINES

"""Messages and progress, on standard error."""

from __future__ import annotations

import sys
from typing import Callable, Iterable, Iterator, Optional, TypeVar

T = TypeVar("T")


def say(message: str) -> None:
    """Print a message, without breaking a progress bar."""
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
    """Yield ``items``; on a terminal, a bar shows how many units of ``total`` have been consumed.

    ``start`` of them were consumed before.
    """
    from tqdm import tqdm

    with tqdm(
        desc=f"  {label}",
        unit=unit,
        unit_scale=True,
        leave=False,
        initial=start,
        total=total,
        disable=None,  # but on a terminal
    ) as bar:
        for item in items:
            yield item
            bar.update(size(item))

"""Means over several trainings of one system."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import List, Optional, Sequence


@dataclass(frozen=True)
class Spread:
    """A number over the seeds of a system.

    Attributes:
        mean: arithmetic mean.
        std: **D**: standard deviation of a sample (n - 1); ``None`` for a single value.
        values: the value of each seed.
    """

    mean: float
    std: Optional[float]
    values: Sequence[float]


def spread(values: Sequence[float]) -> Spread:
    """Compute mean and standard deviation.

    >>> spread([40.0, 42.0])
    Spread(mean=41.0, std=1.4142135623730951, values=[40.0, 42.0])
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), deviation, list(values))


def mean_by_length(rows: Sequence[Sequence[Optional[float]]]) -> List[Optional[float]]:
    """Average each bucket of source lengths over several outputs; ``None`` for an empty bucket.

    >>> mean_by_length([[20.0, None], [22.0, None]])
    [21.0, None]
    """
    means: List[Optional[float]] = []
    for bucket in zip(*rows):
        present = [value for value in bucket if value is not None]
        means.append(statistics.fmean(present) if present else None)
    return means

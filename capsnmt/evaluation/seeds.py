"""A number over several trainings of one system."""

from __future__ import annotations

import statistics
from typing import Any, Dict, Sequence


def spread(values: Sequence[float]) -> Dict[str, Any]:
    """Mean and standard deviation.

    **D**: the deviation is that of a sample (n - 1); ``None`` for a single value.

    >>> spread([40.0, 42.0])["mean"], round(spread([40.0, 42.0])["std"], 3)
    (41.0, 1.414)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": deviation, "values": list(values)}

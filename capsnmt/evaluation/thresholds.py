"""What a difference in a metric means to people: Kocmi et al. 2024, by their mt-thresholds."""

from __future__ import annotations

import re
from typing import Optional, Tuple

PACKAGE = "mt-thresholds"
# **D**: COMET's scores are about 0..1, and the deltas of Kocmi et al. are in hundredths of that.
HUNDREDTHS = 100.0
COMETS = {"comet20", "comet22", "cometkiwi22", "xcometxl", "xcometxxl", "cometkiwixxl"}
PERCENT = 100.0


def estimated_accuracy(metric: str, delta: float) -> Optional[float]:
    """Estimate how often people agree that the system with the better score is the better one.

    Args:
        metric: a key of :data:`~capsnmt.evaluation.metrics.METRICS`, or the name of another metric.
        delta: difference of the scores of two systems.

    Returns:
        Percent; ``None`` where mt-thresholds is not installed or does not know the metric.
    """
    try:
        import mt_thresholds
    except ImportError:
        return None
    name, scale = normalise(metric)
    if name is None:
        return None
    accuracy = float(mt_thresholds.accuracy(abs(delta) * scale, name))
    # it documents a fraction, and returns percent
    return accuracy * PERCENT if accuracy <= 1 else accuracy


def normalise(metric: str) -> Tuple[Optional[str], float]:
    """Return mt-thresholds' name of a metric, and the factor from our scores to its scores.

    **D**: only metrics whose settings and scale are known: BLEU, chrF2, and the COMETs. Those have
    their year in the name, since "COMET" may be any of them.

    >>> normalise("bleu"), normalise("chrf++"), normalise("COMET-22"), normalise("wmt22-comet-da")
    (('bleu', 1.0), (None, 1.0), ('comet22', 100.0), ('comet22', 100.0))
    >>> normalise("Unbabel/XCOMET-XL"), normalise("wmt22-cometkiwi-da"), normalise("COMET")
    (('xcometxl', 100.0), ('cometkiwi22', 100.0), (None, 1.0))
    """
    if metric in ("bleu", "chrf"):
        return metric, 1.0
    name = re.sub(r"[^a-z0-9+]", "", metric.lower().rpartition("/")[2])
    name = re.sub(r"^wmt(\d\d)(comet(?:kiwi)?)da$", r"\2\1", name)
    return (name, HUNDREDTHS) if name in COMETS else (None, 1.0)

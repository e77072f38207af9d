"""Numbers as cells of a table."""

from __future__ import annotations

from typing import Optional

from capsnmt.evaluation.scores import Spread, digits

NONE, MINUS = "–", "−"


def mean_cell(value: Optional[Spread]) -> str:
    """Return mean and deviation; a dash without a value.

    >>> mean_cell(Spread(20.5, 1.25, [])), mean_cell(Spread(20.5, None, [])), mean_cell(None)
    ('20.50 ± 1.25', '20.50', '–')
    """
    if value is None:
        return NONE
    return f"{value.mean:.2f}" + ("" if value.std is None else f" ± {value.std:.2f}")


def score_cell(score: float, metric: str) -> str:
    """Return a score with the digits of its metric.

    >>> score_cell(20.5, "bleu"), score_cell(0.5, "COMET")
    ('20.50', '0.5000')
    """
    return f"{score:.{digits(metric)}f}"


def difference_cell(difference: Optional[float], metric: str = "bleu") -> str:
    """Return a difference with its sign; a dash without a value.

    >>> difference_cell(0.5), difference_cell(-1), difference_cell(-0.01, "COMET")
    ('+0.50', '−1.00', '−0.0100')
    """
    if difference is None:
        return NONE
    return f"{difference:+.{digits(metric)}f}".replace("-", MINUS)


def p_cell(p_value: Optional[float]) -> str:
    """Return a p-value; a dash if nothing was tested.

    >>> p_cell(0.0304), p_cell(0.0001), p_cell(None)
    ('0.030', '< 0.001', '–')
    """
    if p_value is None:
        return NONE
    return "< 0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def deviation_note(seeds: int) -> str:
    """Return the sentence that explains ±; nothing for a single seed.

    >>> deviation_note(3), deviation_note(1)
    (' ± is the standard deviation (n - 1) over at most 3 seeds.', '')
    """
    if seeds < 2:
        return ""
    return f" ± is the standard deviation (n - 1) over at most {seeds} seeds."

"""What the comparison could have shown: the smallest differences in BLEU."""

from __future__ import annotations

from typing import Iterator, Mapping, Optional, Sequence

from capsnmt.evaluation.power import LEVEL, POWER, SmallestDifference
from capsnmt.report.cells import NONE
from capsnmt.report.elements import Element, Paragraph, Table


def power(
    names: Sequence[str], found: Mapping[str, Sequence[SmallestDifference]]
) -> Iterator[Element]:
    """Yield the smallest differences to the first system; nothing for one system.

    Args:
        names: the names of the systems, the baseline first.
        found: test set -> smallest difference of each system but the first.
    """
    baseline, *others = names
    rows = [
        [test_set, name, *map(_cell, (each.test_set, each.seeds, each.both))]
        for test_set, of_set in found.items()
        for name, each in zip(others, of_set)
    ]
    if not rows:
        return
    yield Table(
        f"The smallest difference in BLEU to {baseline} that this comparison is likely to show.",
        ["test set", "system", "other sentences", "other seeds", "both"],
        rows,
        numeric=2,
    )
    text = (
        f"A true difference of this size becomes significant at {LEVEL} with probability {POWER}, "
        "for other sentences of the same kind, for other trainings, and for both; an observed "
        "smaller one says little in either direction."
    )
    if any(each.seeds is None for of_set in found.values() for each in of_set):
        text += " A system that was trained once says nothing about other seeds."
    yield Paragraph(text)


def _cell(difference: Optional[float]) -> str:
    return NONE if difference is None else f"{difference:.2f}"

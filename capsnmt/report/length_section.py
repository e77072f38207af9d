"""BLEU by source length: the figure of the papers, and its numbers."""

from __future__ import annotations

from typing import Iterator, Sequence

from capsnmt.report.cells import NONE
from capsnmt.report.elements import Element, Figure, Heading, Paragraph, Table
from capsnmt.report.translated_set import LengthScores


def figure_name(test_set: str) -> str:
    """Return the name of the figure of a test set."""
    return f"bleu_by_length-{test_set}"


def lengths(test_set: str, names: Sequence[str], found: LengthScores) -> Iterator[Element]:
    """Yield BLEU by source length on one test set."""
    source = found.lengths
    shown = [number for number, segments in enumerate(source.segments) if segments]
    yield Heading(test_set)
    yield Figure(
        figure_name(test_set),
        f"BLEU by source length on {test_set}, one line for each system; the table below has the "
        "numbers.",
        f"BLEU by length of the source sentence, in {source.unit} (10-20 is 10 to 19).",
    )
    yield Table(
        f"BLEU by source length on {test_set}",
        ["system", *(source.buckets[number] for number in shown)],
        [
            ["sentences", *(f"{source.segments[number]:,}" for number in shown)],
            *(
                [name, *(NONE if row[number] is None else f"{row[number]:.2f}" for number in shown)]
                for name, row in zip(names, found.bleu)
            ),
        ],
        numeric=1,
    )
    yield Paragraph("A bucket with few sentences has an unreliable score.")

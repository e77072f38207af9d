"""BLEU by source length: the figure of the papers, and its numbers."""

from __future__ import annotations

from typing import Iterator, Sequence

from capsnmt.report.cells import NONE
from capsnmt.report.elements import Element, Figure, Heading, Paragraph, Table
from capsnmt.runs.seeds import TrainedRow, source_lengths


def figure_name(test_set: str) -> str:
    """Return the name of the figure of a test set."""
    return f"bleu_by_length-{test_set}"


def lengths(test_set: str, systems: Sequence[TrainedRow]) -> Iterator[Element]:
    """Yield BLEU by source length on one test set, as the runs' records have it."""
    source = source_lengths(systems, test_set)
    yield Heading(test_set)
    if source is None:
        yield Paragraph(
            "Not compared: the systems read different subwords, so that their buckets of source "
            "lengths hold different sentences. The scores.json of each run has its own."
        )
        return
    unit, segments = source
    rows = [(system.name, system.by_length(test_set)) for system in systems]
    yield Figure(
        figure_name(test_set),
        f"BLEU by source length on {test_set}, one line for each system; the table below has the "
        "numbers.",
        f"BLEU by length of the source sentence, in {unit} (10-20 is 10 to 19).",
    )
    yield Table(
        f"BLEU by source length on {test_set}",
        ["system", *segments],
        [
            ["sentences", *(f"{number:,}" for number in segments.values())],
            *(
                [name, *(f"{row[bucket]:.2f}" if bucket in row else NONE for bucket in segments)]
                for name, row in rows
            ),
        ],
        numeric=1,
    )
    yield Paragraph("A bucket with few sentences has an unreliable score.")

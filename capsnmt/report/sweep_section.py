"""Sweeps: BLEU over the values of a flag, as figure, table and CSV."""

from __future__ import annotations

import csv
import functools
import io
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from capsnmt.report.cells import NONE, deviation_note, mean_cell
from capsnmt.report.elements import Code, Element, Figure, Heading, Paragraph, Table
from capsnmt.report.figures import bleu_by_value
from capsnmt.runs.seeds import TrainedRow
from capsnmt.runs.sweeps import FinishedSweep

COLUMNS = ("system", "test_set", "value", "seed", "bleu", "tokens_per_second", "parameters")


def figure_name(sweep: FinishedSweep, test_set: str) -> str:
    """Return the name of the figure of a sweep on a test set."""
    return f"sweep-{sweep.flag}-{test_set}"


def table_name(sweep: FinishedSweep) -> str:
    """Return the name of the CSV file of a sweep."""
    return f"sweep-{sweep.flag}.csv"


def sweep_elements(sweep: FinishedSweep, test_sets: Sequence[str]) -> Iterator[Element]:
    """Yield figure and table of a sweep for each test set."""
    baselines = {system.name: dict.fromkeys(sweep.labels, system) for system in sweep.baselines}
    seeds = max(len(system.runs) for _, _, system in _systems(sweep))
    for test_set in test_sets:
        yield Heading(f"BLEU over --{sweep.flag}, {test_set}")
        yield Figure(
            figure_name(sweep, test_set),
            f"BLEU on {test_set} over the values of --{sweep.flag}, one line for each row; the "
            "table below has the numbers.",
            f"BLEU over --{sweep.flag}. A line joins the means over the seeds, a bar is one "
            "standard deviation, and a small dot is one seed. The values are evenly spaced."
            + (" The horizontal line is the baseline." if baselines else ""),
        )
        yield Table(
            f"BLEU on {test_set} by --{sweep.flag}",
            ["system", *sweep.labels],
            [
                [
                    name,
                    *(
                        mean_cell(systems[label].score(test_set)) if label in systems else NONE
                        for label in sweep.labels
                    ),
                ]
                for name, systems in {**baselines, **sweep.curves}.items()
            ],
            numeric=1,
        )
    yield Paragraph(
        [
            f"BLEU is detokenised sacreBLEU.{deviation_note(seeds)} ",
            Code(table_name(sweep)),
            " has every seed, with the training speed and the number of parameters.",
        ]
    )


def sweep_figures(sweep: FinishedSweep, test_sets: Sequence[str]) -> Dict[str, Callable[[], Any]]:
    """Return the name of each figure of a sweep -> the function that draws it."""
    return {
        figure_name(sweep, test_set): functools.partial(
            bleu_by_value,
            f"--{sweep.flag}",
            sweep.labels,
            {
                name: {label: row.score(test_set) for label, row in rows.items()}
                for name, rows in sweep.curves.items()
            },
            {system.name: system.score(test_set) for system in sweep.baselines},
        )
        for test_set in test_sets
    }


def sweep_table(sweep: FinishedSweep, test_sets: Sequence[str]) -> str:
    """Return the numbers of a sweep as CSV, a line for each run and test set.

    A baseline has no value, and a training without times in its log no speed.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, label, system in _systems(sweep):
        for run in system.runs:
            speed = run.curve.tokens_per_second
            for test_set in test_sets:
                bleu = run.output(test_set).scores["bleu"].score
                cells = [f"{bleu:.4f}", "" if speed is None else f"{speed:.1f}", run.parameters]
                writer.writerow([name, test_set, label, run.seed, *cells])
    return file.getvalue()


def _systems(sweep: FinishedSweep) -> List[Tuple[str, str, TrainedRow]]:
    """Return name, label of the value, and system; a baseline has no label."""
    swept = [(name, *each) for name, rows in sweep.curves.items() for each in rows.items()]
    return [*((system.name, "", system) for system in sweep.baselines), *swept]

"""The part of a report about sentence classification.

Probing follows Li et al. 2021, Table 7 (and Li et al. 2019, Table 1); logical inference follows
Figure 4 of Li et al. 2021.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from operator import attrgetter
from typing import Any, Callable, Dict, List, Optional, Sequence

from capsnmt.evaluation.scores import Spread, spread
from capsnmt.machine import describe_machine
from capsnmt.report.cells import deviation_note, mean_cell
from capsnmt.report.elements import Element, Figure, Paragraph, Table, Text
from capsnmt.report.figures import accuracy_by_operators
from capsnmt.report.page import Part
from capsnmt.report.record_sections import launcher_commands, versions
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import Measures
from capsnmt.runs.seeds import TrainedRow
from capsnmt.sentences.senteval import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")
LOGIC = "logical_inference"
ACCURACY, MACRO_F1 = attrgetter("accuracy"), attrgetter("macro_f1")


def classification(runs: Sequence[FinishedRun]) -> Part:
    """Build the part about sentence classifiers.

    Args:
        runs: at least one run.
    """
    probing = [run for run in runs if run.result.task == "probing"]
    logic = [run for run in runs if run.result.task == LOGIC]
    sections: Dict[str, Sequence[Element]] = {}
    figures: Dict[str, Callable[[], Any]] = {}
    if probing:
        sections["Probing"] = [probing_table(probing), Paragraph(_note(probing))]
    if logic:
        majority = logic[0].measures.majority
        alt = "Test accuracy of each system by the number of operators; the table has the numbers."
        sections["Logical inference"] = [
            Figure(LOGIC, alt, "Test accuracy by the number of operators of the longer sentence."),
            logical_inference_table(logic),
            Paragraph(f"{_note(logic)} Majority class: {majority:.2f}."),
        ]
        accuracy = {
            row.name: {bucket: row.measure(accuracy_in(bucket)) for bucket in buckets_of(logic)}
            for row in rows_of(logic, logic)
        }
        figures[LOGIC] = functools.partial(accuracy_by_operators, accuracy, majority)
    started = list(launcher_commands(runs))
    if started:
        sections["Commands"] = started
    names = [run.row for run in runs]
    sections["Versions and machine"] = list(versions(runs, names, describe_machine()))
    return Part("Sentence classification", [], sections, figures)


def rows_of(runs: Sequence[FinishedRun], chosen: Sequence[FinishedRun]) -> List[TrainedRow]:
    """Return the rows of some runs in the papers' order, each with those of its runs chosen."""
    found = dict.fromkeys(run.row for run in runs)
    names = [*(name for name in ROWS if name in found), *(n for n in found if n not in ROWS)]
    return [TrainedRow(name, [run for run in chosen if run.row == name]) for name in names]


def _note(runs: Sequence[FinishedRun]) -> str:
    seeds = sorted({run.seed for run in runs})
    numbers = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"Accuracy in percent; {numbers}.{deviation_note(len(seeds))}"


def probing_table(runs: Sequence[FinishedRun]) -> Table:
    """Return the accuracy of each system on each probing task, and the average by kind of task.

    An average is over the tasks that were run, of their means over seeds.
    """
    lines: List[List[Text]] = []
    for kind in dict.fromkeys(task.kind for task in TASKS.values()):
        tasks = [name for name, task in TASKS.items() if task.kind == kind]
        present = [name for name in tasks if any(run.result.probing_task == name for run in runs)]
        means = []
        for name in present:
            of_task = [run for run in runs if run.result.probing_task == name]
            means.append([row.measure(ACCURACY) for row in rows_of(runs, of_task)])
            majority = f"{of_task[0].measures.majority:.2f}"
            lines.append([kind, TASKS[name].paper, majority, *map(mean_cell, means[-1])])
        if len(present) > 1:
            lines.append([kind, "Ave.", "", *map(mean_cell, map(mean_over_tasks, zip(*means)))])
    header = ["kind", "task", "majority", *(row.name for row in rows_of(runs, runs))]
    return Table("Accuracy on the probing tasks", header, lines, numeric=2)


def mean_over_tasks(means: Sequence[Optional[Spread]]) -> Optional[Spread]:
    """Average the means of several tasks; ``None`` if a task is missing.

    >>> mean_over_tasks([spread([40.0, 42.0]), spread([50.0])])
    Spread(mean=45.5, std=None, values=[41.0, 50.0])
    >>> mean_over_tasks([spread([40.0]), None])
    """
    present = [each.mean for each in means if each is not None]
    return replace(spread(present), std=None) if len(present) == len(means) else None


def logical_inference_table(runs: Sequence[FinishedRun]) -> Table:
    """Return the accuracy of each system by the number of operators, and on all test pairs."""
    rows, first = rows_of(runs, runs), runs[0].measures
    lines: List[List[Text]] = []
    for bucket in buckets_of(runs):
        examples = first.by_bucket[bucket].examples if bucket in first.by_bucket else 0
        cells = [mean_cell(row.measure(accuracy_in(bucket))) for row in rows]
        lines.append([str(bucket), f"{examples:,}", *cells])
    for name, measure in (("accuracy", ACCURACY), ("macro-f1", MACRO_F1)):
        cells = [mean_cell(row.measure(measure)) for row in rows]
        lines.append([name, f"{first.examples:,}", *cells])
    header = ["operators", "examples", *(row.name for row in rows)]
    return Table("Accuracy by the number of operators", header, lines, numeric=1)


def buckets_of(runs: Sequence[FinishedRun], least: int = 1) -> List[int]:
    """Return the numbers of operators in any run, in rising order.

    **D**: as in the paper from 1; without operators there are six examples only.
    """
    buckets = {bucket for run in runs for bucket in run.measures.by_bucket}
    return [bucket for bucket in sorted(buckets) if bucket >= least]


def accuracy_in(bucket: int) -> Callable[[Measures], Optional[float]]:
    """Return the function that reads the accuracy in a bucket; ``None`` for an empty bucket."""

    def accuracy(measures: Measures) -> Optional[float]:
        found = measures.by_bucket.get(bucket)
        return None if found is None else found.accuracy

    return accuracy

"""The part of a report about sentence classification.

Probing follows Li et al. 2021, Table 7 (and Li et al. 2019, Table 1); logical inference follows
Figure 4 of Li et al. 2021.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence

from capsnmt.machine import describe_machine
from capsnmt.report.cells import deviation_note, mean_cell
from capsnmt.report.elements import Element, Figure, Paragraph, Table, Text
from capsnmt.report.figures import accuracy_by_operators
from capsnmt.report.page import Part
from capsnmt.report.record_sections import launcher_commands, versions
from capsnmt.runs.classification import FinishedClassifier, in_order, mean_over_tasks, over_seeds
from capsnmt.runs.records import Measures
from capsnmt.sentences.probing.tasks import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")
LOGIC = "logical_inference"


def classification(runs: Sequence[FinishedClassifier]) -> Part:
    """Build the part about sentence classifiers.

    Args:
        runs: at least one run.
    """
    probing = [run for run in runs if run.task == "probing"]
    logic = [run for run in runs if run.task == LOGIC]
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
            row: {
                bucket: over_seeds(logic, row, bucket_accuracy(bucket))
                for bucket in buckets_of(logic)
            }
            for row in _row_names(logic)
        }
        figures[LOGIC] = functools.partial(accuracy_by_operators, accuracy, majority)
    started = list(launcher_commands(runs))
    if started:
        sections["Commands"] = started
    if any(run.description.versions for run in runs):
        rows = [run.row for run in runs]
        sections["Versions and machine"] = list(versions(runs, rows, describe_machine()))
    return Part("Sentence classification", [], sections, figures)


def _row_names(runs: Sequence[FinishedClassifier]) -> List[str]:
    return in_order((run.row for run in runs), ROWS)


def _note(runs: Sequence[FinishedClassifier]) -> str:
    seeds = sorted({run.seed for run in runs})
    numbers = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"Accuracy in percent; {numbers}.{deviation_note(len(seeds))}"


def probing_table(runs: Sequence[FinishedClassifier]) -> Table:
    """Return the accuracy of each system on each probing task, and the average by kind of task.

    An average is over the tasks that were run, of their means over seeds.
    """
    rows = _row_names(runs)
    lines: List[List[Text]] = []
    for kind in in_order(task.kind for task in TASKS.values()):
        tasks = [name for name, task in TASKS.items() if task.kind == kind]
        present = [name for name in tasks if any(run.probing_task == name for run in runs)]
        means = []
        for name in present:
            of_task = [run for run in runs if run.probing_task == name]
            means.append([over_seeds(of_task, row, measure("accuracy")) for row in rows])
            majority = f"{of_task[0].measures.majority:.2f}"
            lines.append([kind, TASKS[name].paper, majority, *map(mean_cell, means[-1])])
        if len(present) > 1:
            lines.append([kind, "Ave.", "", *map(mean_cell, map(mean_over_tasks, zip(*means)))])
    header = ["kind", "task", "majority", *rows]
    return Table("Accuracy on the probing tasks", header, lines, numeric=2)


def logical_inference_table(runs: Sequence[FinishedClassifier]) -> Table:
    """Return the accuracy of each system by the number of operators, and on all test pairs."""
    rows, first = _row_names(runs), runs[0].measures
    lines: List[List[Text]] = []
    for bucket in buckets_of(runs):
        examples = first.by_bucket[bucket].examples if bucket in first.by_bucket else 0
        cells = [mean_cell(over_seeds(runs, row, bucket_accuracy(bucket))) for row in rows]
        lines.append([str(bucket), f"{examples:,}", *cells])
    for name in ("accuracy", "macro_f1"):
        cells = [mean_cell(over_seeds(runs, row, measure(name))) for row in rows]
        lines.append([name.replace("_", "-"), f"{first.examples:,}", *cells])
    header = ["operators", "examples", *rows]
    return Table("Accuracy by the number of operators", header, lines, numeric=1)


def buckets_of(runs: Sequence[FinishedClassifier], least: int = 1) -> List[int]:
    """Return the numbers of operators in any run, in rising order.

    **D**: as in the paper from 1; without operators there are six examples only.
    """
    buckets = {bucket for run in runs for bucket in run.measures.by_bucket}
    return [bucket for bucket in sorted(buckets) if bucket >= least]


def measure(name: str) -> Callable[[Measures], Optional[float]]:
    """Return the function that reads a measure."""
    return lambda measures: getattr(measures, name)


def bucket_accuracy(bucket: int) -> Callable[[Measures], Optional[float]]:
    """Return the function that reads the accuracy in a bucket; ``None`` for an empty bucket."""

    def accuracy(measures: Measures) -> Optional[float]:
        found = measures.by_bucket.get(bucket)
        return None if found is None else found.accuracy

    return accuracy

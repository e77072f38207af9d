"""The report's part on classifiers, as the papers show them.

Probing as Li et al. 2021, Table 7 (and Li et al. 2019, Table 1), logical inference as its Figure 4.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Sequence

from capsnmt.evaluation.seeds import Spread
from capsnmt.report.blocks import Block, Figure, Paragraph, Table, Text
from capsnmt.report.figures import accuracy_by_operators
from capsnmt.report.page import Part
from capsnmt.runs.classification import ClassifierRun, in_order, over_seeds
from capsnmt.runs.records import Measures
from capsnmt.sentences.probing.senteval import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")
LOGIC = "logical_inference"


def classification(results: Sequence[ClassifierRun]) -> Part:
    """All that the page says of these results: of at least one run."""
    probing = [result for result in results if result.task == "probing"]
    logic = [result for result in results if result.task == LOGIC]
    sections: Dict[str, Sequence[Block]] = {}
    figures: Dict[str, Callable[[], Any]] = {}
    if probing:
        sections["Probing"] = [probing_table(probing), Paragraph(_seeds(probing))]
    if logic:
        majority = logic[0].measures.majority
        alt = "Test accuracy of each system by the number of operators; the table has the numbers."
        sections["Logical inference"] = [
            Figure(LOGIC, alt, "Test accuracy by the operators of the longer sentence."),
            logical_inference_table(logic),
            Paragraph(f"{_seeds(logic)} Majority class: {majority:.2f}."),
        ]
        rows, buckets = _row_names(logic), buckets_of(logic)
        accuracy = {
            row: {bucket: over_seeds(logic, row, bucket_accuracy(bucket)) for bucket in buckets}
            for row in rows
        }
        figures[LOGIC] = functools.partial(accuracy_by_operators, accuracy, majority)
    return Part("Sentence classification", [], sections, figures)


def number(value: Optional[Spread]) -> str:
    """Mean and deviation as a cell of a table."""
    if value is None:
        return ""
    return f"{value.mean:.2f}" + ("" if value.std is None else f" ± {value.std:.2f}")


def _row_names(results: Sequence[ClassifierRun]) -> List[str]:
    return in_order((result.row for result in results), ROWS)


def _seeds(results: Sequence[ClassifierRun]) -> str:
    seeds = sorted({result.seed for result in results})
    deviation = "; mean ± standard deviation" if len(seeds) > 1 else ""
    return (
        f"Accuracy in percent, of seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        f"{deviation}."
    )


def probing_table(results: Sequence[ClassifierRun]) -> Table:
    """Accuracy of each system on each probing task, and by kind of task on the average.

    An average is over the tasks that are there, of their means over seeds.
    """
    rows = _row_names(results)
    lines: List[List[Text]] = []
    kinds = in_order(task.kind for task in TASKS.values())
    for kind in kinds:
        tasks = [name for name, task in TASKS.items() if task.kind == kind]
        present = [name for name in tasks if any(r.probing_task == name for r in results)]
        means: Dict[str, List[float]] = {row: [] for row in rows}
        for name in present:
            of_task = [result for result in results if result.probing_task == name]
            cells = [over_seeds(of_task, row, measure("accuracy")) for row in rows]
            majority = f"{of_task[0].measures.majority:.2f}"
            lines.append([kind, TASKS[name].paper, majority, *map(number, cells)])
            for row, cell in zip(rows, cells):
                means[row] += [cell.mean] if cell else []
        if len(present) > 1:
            averages = [
                f"{sum(of_row) / len(present):.2f}" if len(of_row) == len(present) else ""
                for of_row in means.values()
            ]
            lines.append([kind, "Ave.", "", *averages])
    header = ["kind", "task", "majority", *rows]
    return Table("Accuracy on the probing tasks", header, lines, numeric=2)


def measure(name: str) -> Callable[[Measures], Optional[float]]:
    """What reads a measure off a result."""
    return lambda measures: getattr(measures, name)


def bucket_accuracy(bucket: int) -> Callable[[Measures], Optional[float]]:
    """What reads the accuracy in a bucket off a result; ``None`` where it has no examples."""

    def accuracy(measures: Measures) -> Optional[float]:
        found = measures.by_bucket.get(bucket)
        return None if found is None else found.accuracy

    return accuracy


def buckets_of(results: Sequence[ClassifierRun], least: int = 1) -> List[int]:
    """The numbers of operators that any result has, in rising order.

    **D**: as in the paper, from 1: words alone (0 operators) are six examples.
    """
    buckets = {bucket for result in results for bucket in result.measures.by_bucket}
    return [bucket for bucket in sorted(buckets) if bucket >= least]


def logical_inference_table(results: Sequence[ClassifierRun]) -> Table:
    """Accuracy of each system by the number of operators, then on all test pairs."""
    rows = _row_names(results)
    lines: List[List[Text]] = []
    for bucket in buckets_of(results):
        of_first = results[0].measures.by_bucket.get(bucket)
        examples = 0 if of_first is None else of_first.examples
        cells = [over_seeds(results, row, bucket_accuracy(bucket)) for row in rows]
        lines.append([str(bucket), f"{examples:,}", *map(number, cells)])
    for name in ("accuracy", "macro_f1"):
        cells = [over_seeds(results, row, measure(name)) for row in rows]
        lines.append(
            [name.replace("_", "-"), f"{results[0].measures.examples:,}", *map(number, cells)]
        )
    header = ["operators", "examples", *rows]
    return Table("Accuracy by the number of operators", header, lines, numeric=1)

"""What a report says about sentence classifiers.

Probing follows Li et al. 2021, Table 7 (and Li et al. 2019, Table 1); logical inference follows
Figure 4 of Li et al. 2021.
"""

from __future__ import annotations

import functools
import statistics
from operator import attrgetter
from typing import Any, Dict, List, Optional, Sequence, Tuple

from capsnmt.evaluation.scores import Spread, spread
from capsnmt.pages.page import Table
from capsnmt.pages.plots import Figures
from capsnmt.report.figures import means_by_category
from capsnmt.report.tables import NONE, mean_cell
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import Measures
from capsnmt.runs.trained_rows import TrainedRow
from capsnmt.sentences.senteval import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")
MEASURES = {"accuracy": attrgetter("accuracy"), "macro-f1": attrgetter("macro_f1")}


def probing(runs: Sequence[FinishedRun]) -> Tuple[Dict[str, Any], Figures]:
    """Return the values of the template for probing tasks; there is no figure.

    The table has the accuracy of each system on each task, and the average by kind of task: over
    the tasks that were run, of their means over seeds.
    """
    lines: List[List[str]] = []
    for kind in dict.fromkeys(task.kind for task in TASKS.values()):
        means = []
        for name in [name for name, task in TASKS.items() if task.kind == kind]:
            of_task = [run for run in runs if run.result.probing_task == name]
            if of_task:
                means.append([row.measure(MEASURES["accuracy"]) for row in _rows(runs, of_task)])
                majority = f"{of_task[0].measures.majority:.2f}"
                lines.append([kind, TASKS[name].paper, majority, *map(mean_cell, means[-1])])
        if len(means) > 1:
            lines.append([kind, "Ave.", "", *map(_average, zip(*means))])
    header = ["kind", "task", "majority", *(row.name for row in _rows(runs, runs))]
    return {"table": Table(header, lines, numeric=2), "note": _note(runs)}, {}


def logical_inference(runs: Sequence[FinishedRun]) -> Tuple[Dict[str, Any], Figures]:
    """Return the values of the template for logical inference, and its figure.

    The table has the accuracy of each system by the number of operators, and on all test pairs.

    **D**: as in the paper from 1; without operators there are six examples only.
    """
    rows, first = _rows(runs, runs), runs[0].measures
    buckets = sorted({bucket for run in runs for bucket in run.measures.by_bucket if bucket > 0})
    accuracy: Dict[str, Dict[str, Spread]] = {row.name: {} for row in rows}
    lines: List[List[str]] = []
    for bucket in buckets:
        examples = first.by_bucket[bucket].examples if bucket in first.by_bucket else 0
        found = [row.measure(functools.partial(_accuracy_in, bucket)) for row in rows]
        lines.append([str(bucket), f"{examples:,}", *map(mean_cell, found)])
        for row, each in zip(rows, found):
            if each is not None:
                accuracy[row.name][str(bucket)] = each
    for name, measure in MEASURES.items():
        cells = [mean_cell(row.measure(measure)) for row in rows]
        lines.append([name, f"{first.examples:,}", *cells])
    header = ["operators", "examples", *(row.name for row in rows)]
    draw = functools.partial(
        means_by_category,
        accuracy,
        {str(bucket): str(bucket) for bucket in buckets},
        ("operators in the longer sentence", "test accuracy, percent"),
        {"majority class": spread([first.majority])},
    )
    majority, table = f"{first.majority:.2f}", Table(header, lines, numeric=1)
    return {"table": table, "note": _note(runs), "majority": majority}, {"logical_inference": draw}


def _rows(runs: Sequence[FinishedRun], chosen: Sequence[FinishedRun]) -> List[TrainedRow]:
    """Return the rows of some runs in the papers' order, each with those of its runs chosen."""
    found = dict.fromkeys(run.row for run in runs)
    names = [*(name for name in ROWS if name in found), *(n for n in found if n not in ROWS)]
    return [TrainedRow(name, [run for run in chosen if run.row == name]) for name in names]


def _average(means: Sequence[Optional[Spread]]) -> str:
    """Return the average of the means of several tasks; a dash if a task is missing."""
    present = [each.mean for each in means if each is not None]
    return f"{statistics.fmean(present):.2f}" if len(present) == len(means) else NONE


def _accuracy_in(bucket: int, measures: Measures) -> Optional[float]:
    return measures.by_bucket[bucket].accuracy if bucket in measures.by_bucket else None


def _note(runs: Sequence[FinishedRun]) -> str:
    seeds = sorted({run.seed for run in runs})
    note = f"Accuracy in percent; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}."
    if len(seeds) > 1:
        note += f" ± is the standard deviation (n - 1) over at most {len(seeds)} seeds."
    return note

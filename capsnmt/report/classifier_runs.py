"""What a report says about sentence classifiers.

Probing follows Li et al. 2021, Table 7 (and Li et al. 2019, Table 1); logical inference follows
Figure 4 of Li et al. 2021.
"""

import functools
import statistics
from itertools import chain
from operator import attrgetter
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from capsnmt.evaluation.scores import Spread, spread
from capsnmt.pages.page import Table
from capsnmt.pages.plots import Figures
from capsnmt.report.figures import means_by_category
from capsnmt.report.tables import NONE, mean_cell, settings
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import Measures
from capsnmt.runs.trained_rows import TrainedRow, check_one_row, group
from capsnmt.sentences.senteval import TASKS

# the systems of Li et al. 2021, then those of Li et al. 2019
ROWS = ("baseline", "disagreement", "aggregation", "both", "simple", "em")
ACCURACY = attrgetter("accuracy")
MEASURES = {"accuracy": ACCURACY, "macro-f1": attrgetter("macro_f1")}


def probing(runs: Sequence[FinishedRun]) -> Tuple[Dict[str, Any], Figures]:
    """Return the values of the template for probing tasks; there is no figure.

    The table has the accuracy of each system on each task, and the average by kind of task: over
    the tasks that were run, of their means over seeds.
    """
    by_task = {
        task: _rows(run for run in runs if run.result.probing_task == task) for task in TASKS
    }
    names = _ordered(chain(*by_task.values()))
    firsts: Dict[str, TrainedRow] = {}
    for rows in by_task.values():
        for name, row in rows.items():
            first = firsts.setdefault(name, row)
            check_one_row(first.runs[0], row.runs[0], "report them separately")
    lines: List[List[str]] = []
    for kind in dict.fromkeys(task.kind for task in TASKS.values()):
        means = []
        for task in [name for name, task in TASKS.items() if task.kind == kind and by_task[name]]:
            rows = by_task[task]
            majority = f"{next(iter(rows.values())).runs[0].measures.majority:.2f}"
            found = [rows[name].measure(ACCURACY) if name in rows else None for name in names]
            lines.append([kind, TASKS[task].paper, majority, *map(mean_cell, found)])
            means.append(found)
        if len(means) > 1:
            lines.append([kind, "Ave.", "", *map(_average, zip(*means))])
    header = ["kind", "task", "majority", *names]
    shown = [firsts[name] for name in names]
    return {"table": Table(header, lines, numeric=2), **_compared(runs, shown)}, {}


def logical_inference(runs: Sequence[FinishedRun]) -> Tuple[Dict[str, Any], Figures]:
    """Return the values of the template for logical inference, and its figure.

    The table has the accuracy of each system by the number of operators, and on all test pairs.

    **D**: as in the paper from 1; without operators there are six examples only.
    """
    rows, first = [*_rows(runs).values()], runs[0].measures
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
    table = Table(header, lines, numeric=1)
    values = {"table": table, **_compared(runs, rows), "majority": f"{first.majority:.2f}"}
    return values, {"logical_inference": draw}


def _rows(runs: Iterable[FinishedRun]) -> Dict[str, TrainedRow]:
    """Return the rows of the runs of one task by name, in the papers' order."""
    rows = {row.name: row for row in group([*runs])}
    return {name: rows[name] for name in _ordered(rows)}


def _ordered(names: Iterable[str]) -> List[str]:
    """Return different names in the papers' order, others after those."""
    places = {name: place for place, name in enumerate(ROWS)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(ROWS)))


def _average(means: Sequence[Optional[Spread]]) -> str:
    """Return the average of the means of several tasks; a dash if a task is missing."""
    present = [each.mean for each in means if each is not None]
    return f"{statistics.fmean(present):.2f}" if len(present) == len(means) else NONE


def _accuracy_in(bucket: int, measures: Measures) -> Optional[float]:
    return measures.by_bucket[bucket].accuracy if bucket in measures.by_bucket else None


def _compared(runs: Sequence[FinishedRun], rows: Sequence[TrainedRow]) -> Dict[str, Any]:
    """Return seeds and settings, and which runs were trained on other data than the first."""
    first = {run.result.probing_task: run for run in reversed(runs)}
    others = [
        str(run.folder)
        for run in runs
        if run.training.vocabulary != first[run.result.probing_task].training.vocabulary
    ]
    seeds = sorted({run.seed for run in runs})
    return {"seeds": seeds, "settings": settings(rows), "first": runs[0].row, "others": others}

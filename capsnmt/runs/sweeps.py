"""Sweeps among finished runs: rows over the values of a flag."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import SweepPoint
from capsnmt.runs.trained_rows import TrainedRow, group


@dataclass(frozen=True)
class FinishedSweep:
    """All rows that were launched with several values of one flag."""

    flag: str  # without dashes
    labels: Sequence[str]  # the values of all rows: numbers in rising order, then texts
    curves: Mapping[str, Mapping[str, TrainedRow]]  # row that is swept -> label -> all seeds
    baselines: Sequence[TrainedRow]  # that they are compared with


def find_sweeps(runs: Sequence[FinishedRun]) -> List[FinishedSweep]:
    """Return the sweeps among finished runs, by their flags.

    The baselines are the rows that the swept runs were tested against, if they are among the runs;
    otherwise the first row, if it does not belong to a sweep.
    """
    swept = [(run.config.sweep, run) for run in runs if run.config.sweep is not None]
    unchanged = group([run for run in runs if run.config.sweep is None])
    first = unchanged[:1] if runs[0].config.sweep is None else []
    sweeps = []
    for flag in dict.fromkeys(point.flag for point, _ in swept):
        members = [(point, run) for point, run in swept if point.flag == flag]
        tested = {run.config.baseline for _, run in members}
        baselines = [row for row in unchanged if row.runs[0].row in tested] or first
        values = {point.label: point.value for point, _ in members}
        labels = sorted(values, key=lambda label: _order(values[label]))
        sweeps.append(FinishedSweep(flag, labels, _curves(members, labels), baselines))
    return sweeps


def _curves(
    members: Sequence[Tuple[SweepPoint, FinishedRun]], labels: Sequence[str]
) -> Dict[str, Dict[str, TrainedRow]]:
    """Return the curve of each row; a row in two outputs of the launcher has two curves."""
    found: Dict[Tuple[str, Path], Dict[str, List[FinishedRun]]] = {}
    for point, run in members:
        by_label = found.setdefault((point.row, run.folder.row.parent), {})
        by_label.setdefault(point.label, []).append(run)
    rows = [row for row, _ in found]
    return {
        row if rows.count(row) == 1 else f"{row} ({output})": {
            label: group(by_label[label])[0] for label in labels if label in by_label
        }
        for (row, output), by_label in found.items()
    }


def _order(value: Any) -> Tuple[bool, float]:
    """Return the key that sorts values: numbers by size, then texts as they occur."""
    with suppress(ValueError):
        return isinstance(value, bool), float(value)  # of 5e-4, YAML makes a text
    return True, 0.0

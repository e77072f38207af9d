"""Sweeps among finished runs: the curves of a score over the values of a flag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from capsnmt.runs.records import SweepPoint
from capsnmt.runs.systems import System, group
from capsnmt.runs.translation import FinishedTranslation


@dataclass(frozen=True)
class Curve:
    """A row with several values of a flag.

    Attributes:
        name: the name of the row that is swept.
        systems: label of each value -> the runs with it, all seeds.
    """

    name: str
    systems: Mapping[str, System]


@dataclass(frozen=True)
class FinishedSweep:
    """All curves over the values of one flag.

    Attributes:
        flag: the flag, without dashes.
        labels: the values of all curves: numbers in rising order, then texts.
        curves: one for each row.
        baselines: the systems that the rows are compared with.
    """

    flag: str
    labels: Sequence[str]
    curves: Sequence[Curve]
    baselines: Sequence[System]


def find_sweeps(runs: Sequence[FinishedTranslation]) -> List[FinishedSweep]:
    """Return the sweeps among finished runs, by their flags.

    The baselines are the rows that the swept runs were tested against, if they are among the runs;
    otherwise the first row, if it does not belong to a sweep.

    Raises:
        ConfigurationError: seeds of one row were trained with different settings.
    """
    points = [(run.description.sweep, run) for run in runs]
    swept = [(point, run) for point, run in points if point is not None]
    unchanged = group([run for point, run in points if point is None])
    first = [] if points[0][0] is not None else unchanged[:1]
    sweeps = []
    for flag in dict.fromkeys(point.flag for point, _ in swept):
        members = [(point, run) for point, run in swept if point.flag == flag]
        tested = {run.description.baseline for _, run in members}
        baselines = [system for system in unchanged if system.runs[0].row in tested] or first
        values = {point.label: point.value for point, _ in members}
        labels = sorted(values, key=lambda label: _order(values[label]))
        sweeps.append(FinishedSweep(flag, labels, _curves(members, labels), baselines))
    return sweeps


def _curves(
    members: Sequence[Tuple[SweepPoint, FinishedTranslation]], labels: Sequence[str]
) -> List[Curve]:
    """Return a curve for each row; a row in two outputs of the launcher has two curves."""
    found: Dict[Tuple[str, Path], Dict[str, List[FinishedTranslation]]] = {}
    for point, run in members:
        by_label = found.setdefault((point.row, run.folder.row.parent), {})
        by_label.setdefault(point.label, []).append(run)
    rows = [row for row, _ in found]
    curves = []
    for (row, output), by_label in found.items():
        name = row if rows.count(row) == 1 else f"{row} ({output})"
        systems = {label: group(by_label[label])[0] for label in labels if label in by_label}
        curves.append(Curve(name, systems))
    return curves


def _order(value: Any) -> Tuple[bool, float]:
    """Return the key that sorts values: numbers by size, then texts as they occur."""
    is_number = not isinstance(value, (bool, str))
    return not is_number, value if is_number else 0.0

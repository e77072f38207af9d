"""The table of the suite of made-up tasks: how many whole sequences each system gets right.

``python -m scripts.composition RUNS`` reads the finished runs of ``RUNS/TASK/ROW/seed-N`` and
prints, and writes to ``RUNS/composition.md``, a line for each task and system.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import numpy as np

from capsnmt.cli import ConfigurationError, OneLineParser, run_command
from capsnmt.corpora.prepared import PreparedData
from capsnmt.evaluation.outputs import read_lines
from capsnmt.evaluation.scores import Spread, spread
from capsnmt.evaluation.significance import difference_of
from capsnmt.files import write_all
from capsnmt.pages.page import Markdown, Table
from capsnmt.report.tables import MINUS, NONE, difference_cell, mean_cell
from capsnmt.runs.finished import FinishedRun, check_comparable, find_runs
from capsnmt.runs.trained_rows import TrainedRow, group
from scripts.results import translations

BASELINE = "baseline"


def accuracy(run: FinishedRun, test_set: str) -> float:
    """Return the percentage of the sequences of a test set that are right as a whole."""
    found = translations(run.folder.generated(test_set), run.config)
    reference = PreparedData(run.data).raw(test_set, run.settings.languages[1])
    run.check_references(test_set, [reference])
    expected = read_lines(str(reference))
    return 100 * sum(map(str.__eq__, found, expected)) / len(expected)


def mean_interval(found: Spread) -> Optional[Tuple[float, float]]:
    r"""Return Student's 95% interval of the mean over n seeds; ``None`` for a single one.

    .. math:: \bar x \pm t_{0.975, n - 1} s / \sqrt n

    **D**: it is cut to 0..100.
    """
    from scipy.stats import t

    if found.std is None:
        return None
    n = len(found.values)
    half = float(t.ppf(0.975, n - 1)) * found.std / math.sqrt(n)
    return max(0.0, found.mean - half), min(100.0, found.mean + half)


def lines(task: str, rows: List[TrainedRow]) -> Iterator[List[str]]:
    """Yield the cells of each system of a task, the baseline first; Δ is to the baseline."""
    check_comparable([run for row in rows for run in row.runs])
    rows.sort(key=lambda row: (row.name != BASELINE, row.name))
    baseline = None
    for row in rows:
        cells = [task, f"`{row.name}`", f"{row.runs[0].parameters:,}", str(len(row.runs))]
        for test_set in row.runs[0].settings.data.test_sets:
            found = spread([accuracy(run, test_set) for run in row.runs])
            cells += [mean_cell(found), reach(mean_interval(found))]
        if row.name == BASELINE:
            baseline = found
        if baseline is None or row.name == BASELINE:
            yield [*cells, NONE, NONE]
        else:
            difference = difference_cell(found.mean - baseline.mean)
            yield [*cells, difference, reach(welch(found, baseline))]


def welch(one: Spread, other: Spread) -> Optional[Tuple[float, float]]:
    """Return Welch's 95% interval of the difference of two means over seeds."""
    ours, theirs = ((np.array(x.values), np.zeros((len(x.values), 1))) for x in (one, other))
    found: Optional[Tuple[float, float]] = difference_of(ours, theirs).get("welch_interval")
    return found


def reach(bounds: Optional[Tuple[float, float]]) -> str:
    """Return the bounds of an interval as a cell."""
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}".replace("-", MINUS) if bounds else NONE


def main() -> None:
    """Print the table and write it beside the runs."""
    parser = OneLineParser(prog="python -m scripts.composition", description=main.__doc__)
    parser.add_argument("runs", type=Path, help="the folder of the suite, RUNS/TASK/ROW/seed-N")
    folder: Path = parser.parse_args().runs
    tasks = sorted({path.parents[2] for path in folder.glob("*/*/seed-*/config.json")})
    if not tasks:
        raise ConfigurationError(f"{folder} has no runs of the suite; give the --output of it")
    rows = {task.name: group(find_runs([task])) for task in tasks}
    header = ["task", "system", "parameters", "seeds"]
    for test_set in next(iter(rows.values()))[0].runs[0].settings.data.test_sets:
        header += [test_set, "95%"]
    cells = [[*map(Markdown, line)] for task in rows for line in lines(task, rows[task])]
    table = Table([*header, f"Δ {test_set}", "95%"], cells, numeric=2)
    write_all({folder / "composition.md": f"{table}\n".encode()})
    print(table)


if __name__ == "__main__":
    sys.exit(run_command(main))

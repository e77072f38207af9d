"""The table of the suite of made-up tasks: how many whole sequences each system gets right.

``python -m scripts.composition RUNS`` reads the finished runs of ``RUNS/TASK/ROW/seed-N`` and
prints, and writes to ``RUNS/composition.md``, a line for each task and system. With ``--keep FILE``
their outcomes are added to FILE, and the table is of all that it has: no run is needed again.
"""

import csv
import hashlib
import itertools
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import msgspec
import numpy as np

from capsnmt import records
from capsnmt.cli import ConfigurationError, OneLineParser, run_command
from capsnmt.corpora.prepared import PreparedData
from capsnmt.evaluation.outputs import read_lines
from capsnmt.evaluation.scores import Spread, spread
from capsnmt.evaluation.significance import difference_of, holm
from capsnmt.evaluation.test_set import check_count
from capsnmt.files import atomic_writer, write_all
from capsnmt.pages.page import Markdown, Table
from capsnmt.records import Record
from capsnmt.report.tables import MINUS, NONE, difference_cell, mean_cell, p_cell
from capsnmt.runs.comparison import read_translations
from capsnmt.runs.finished import FinishedRun, check_comparable, find_runs
from capsnmt.runs.trained_rows import group

BASELINE = "baseline"
KEPT = Path(__file__).parents[1] / "results" / "composition.tsv"


class Outcome(Record, frozen=True):
    """What a finished training of the suite leaves behind: a line of the file that keeps them."""

    task: str
    system: str
    seed: int
    parameters: int
    updates: int
    device: str
    version: str  # of capsnmt, with its commit
    settings: str  # of the row: twelve digits of a checksum
    data: str  # the same of the data and the references
    prefix: Optional[float]  # percent of a sequence of the last test set before its first error
    accuracy: Dict[str, float]  # test set -> percent of whole sequences

    @classmethod
    def of(cls, task: str, run: FinishedRun) -> "Outcome":
        """Return that of a run."""
        training, tests = run.training, run.settings.data.test_sets
        texts = [run.scores[x].checksums.get("reference", "") for x in tests]
        found = {x: [*sequences(run, x)] for x in tests}
        return cls(
            task,
            run.row,
            run.seed,
            run.parameters,
            run.curve.updates,
            f"{training.device_name}, threads of the training: {training.threads}",
            training.versions.get("capsnmt", "unknown"),
            content(records.plain(run.settings)),
            content([training.data, texts]),
            percent([share_begun(*pair) for pair in found[[*tests][-1]]]),
            {x: percent([one == other for one, other in pairs]) for x, pairs in found.items()},
        )


def content(value: Any) -> str:
    """Return twelve digits of the checksum of a value of JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


FACTS = [name for name in Outcome.__struct_fields__ if name != "accuracy"]


def read(path: Path) -> List[Outcome]:
    """Return the outcomes of a file that keeps them; none if it does not exist."""
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file, delimiter="\t")]
    try:
        facts = [{x: line.pop(x, None) or None for x in FACTS} for line in lines]
        nested = [{**known, "accuracy": line} for known, line in zip(facts, lines)]
        return msgspec.convert(nested, List[Outcome], strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{path} keeps no outcomes of the suite ({error}); give another file"
        ) from None


def keep(outcomes: List[Outcome], path: Path) -> None:
    """Write outcomes to a file in the order of task, system and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path) as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow([*FACTS, *outcomes[0].accuracy])
        for x in sorted(outcomes, key=lambda each: (each.task, each.system, each.seed)):
            table.writerow([*(getattr(x, name) for name in FACTS), *x.accuracy.values()])


def check(outcomes: List[Outcome]) -> None:
    """Raise unless outcomes that are compared are of the same data, updates and settings."""
    first: Dict[str, Outcome] = {}
    for x in outcomes:
        of_task, of_row = first.setdefault(x.task, x), first.setdefault(f"{x.task} {x.system}", x)
        for what, one in (("data", of_task), ("updates", of_task), ("settings", of_row)):
            if getattr(x, what) != getattr(one, what):
                raise ConfigurationError(
                    f"{x.task}: {x.system}, seed {x.seed}, has the {what} {getattr(x, what)}, but "
                    f"{one.system}, seed {one.seed}, has {getattr(one, what)}; keep one of them"
                )


def sequences(run: FinishedRun, test_set: str) -> Iterator[Tuple[str, str]]:
    """Yield each translation of a test set with its reference."""
    found = read_translations(run, test_set)
    reference = PreparedData(run.data).raw(test_set, run.settings.languages[1])
    run.check_references(test_set, [reference])
    expected = read_lines(str(reference))
    check_count(found.label, found.tokens, str(reference), expected)
    yield from zip(found.tokens, expected)


def share_begun(found: str, expected: str) -> float:
    """Return the share of the expected words that come before the first wrong or missing one."""
    pairs = [*zip(found.split(), expected.split())]
    right = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return right / len(expected.split())


def percent(shares: Sequence[float]) -> float:
    """Return the mean as a percentage."""
    return 100 * sum(shares) / len(shares)


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


def lines(task: str, outcomes: List[Outcome]) -> Iterator[Tuple[List[str], Dict[str, Any]]]:
    """Yield cells and the comparison of each system of a task, the baseline first."""
    for system in sorted({x.system for x in outcomes}, key=lambda name: (name != BASELINE, name)):
        ours = [x for x in outcomes if x.system == system]
        theirs = [x for x in outcomes if x.system == BASELINE != system]
        *learned, last = ours[0].accuracy
        prefixes = [[x.prefix for x in each if x.prefix is not None] for each in (ours, theirs)]
        whole = [[x.accuracy[last] for x in each] for each in (ours, theirs)]
        begun = f"{mean_cell(spread(prefixes[0]))} ({len(prefixes[0])})" if prefixes[0] else NONE
        further, _ = versus(*prefixes)
        found, (better, compared) = spread(whole[0]), versus(*whole)
        cells = [task, f"`{system}`", f"{ours[0].parameters:,}", str(len(ours))]
        cells += [mean_cell(spread([x.accuracy[name] for x in ours])) for name in learned]
        cells += [begun, *further, mean_cell(found), reach(mean_interval(found)), *better]
        yield cells, compared


def versus(ours: List[float], theirs: List[float]) -> Tuple[Tuple[str, str], Dict[str, Any]]:
    """Return the difference of two means over seeds, its 95% interval, and Welch's comparison."""
    if not (ours and theirs):
        return (NONE, NONE), {}
    one, other = ((np.array(x), np.zeros((len(x), 1))) for x in (ours, theirs))
    compared = difference_of(one, other)
    difference = difference_cell(statistics.fmean(ours) - statistics.fmean(theirs))
    return (difference, reach(compared.get("welch_interval"))), compared


def reach(bounds: Optional[Tuple[float, float]]) -> str:
    """Return the bounds of an interval as a cell."""
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}".replace("-", MINUS) if bounds else NONE


def outcomes_below(folder: Path) -> Iterator[Outcome]:
    """Yield what the finished runs of the suite below a folder leave behind."""
    tasks = sorted({path.parents[2] for path in folder.glob("*/*/seed-*/scores.json")})
    if not tasks:
        raise ConfigurationError(
            f"{folder} has no finished runs of the suite; give the --output of it"
        )
    for task in tasks:
        # not a copy that lies beside its seed
        runs = [x for x in find_runs([task]) if x.folder.path.name == f"seed-{x.seed}"]
        rows = group(runs)
        check_comparable([run for row in rows for run in row.runs])
        for row in rows:
            yield from (Outcome.of(task.name, run) for run in row.runs)


def table(outcomes: List[Outcome]) -> Table:
    """Return the table of some outcomes, with p of each difference corrected for their number."""
    check(outcomes)
    *learned, last = outcomes[0].accuracy
    header = ["task", "system", "parameters", "seeds", *learned, "prefix", "Δ prefix", "95%"]
    header += [last, "95%", f"Δ {last}", "95%"]
    tasks = sorted({x.task for x in outcomes})
    found = [
        line for task in tasks for line in lines(task, [x for x in outcomes if x.task == task])
    ]
    p_values = [compared["welch_p_value"] for _, compared in found if compared]
    corrected = iter(holm(p_values))
    cells = [[*line, p_cell(next(corrected) if compared else None)] for line, compared in found]
    header += [f"p, Holm over {len(p_values)}"]
    return Table(header, [[*map(Markdown, line)] for line in cells], numeric=2)


def suite() -> str:
    """Return the table of all outcomes that the repository keeps."""
    return f"{table(read(KEPT))}\n"


def main() -> None:
    """Print the table and write it beside the runs."""
    parser = OneLineParser(prog="python -m scripts.composition", description=main.__doc__)
    parser.add_argument("runs", type=Path, help="the folder of the suite, RUNS/TASK/ROW/seed-N")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where outcomes are kept")
    options = parser.parse_args()
    kept = [] if options.keep is None else read(options.keep)
    new = [*outcomes_below(options.runs)]
    found = {(x.task, x.system, x.seed): x for x in [*kept, *new]}
    outcomes = [*found.values()]
    made = table(outcomes)
    write_all({options.runs / "composition.md": f"{made}\n".encode()})
    if options.keep is not None:
        keep(outcomes, options.keep)
    print(made)


if __name__ == "__main__":
    sys.exit(run_command(main))

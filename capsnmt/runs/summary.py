"""The means over the seeds of a row, which the launcher writes when a seed is finished."""

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Dict, Iterator, List, Mapping, Optional, Sequence

from msgspec import field

from capsnmt import records
from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.scores import COMPARABLE, Comparison, Spread, common_metrics, digits
from capsnmt.records import Record
from capsnmt.runs.finished import FinishedRun, differing_texts, signatures
from capsnmt.runs.records import RunFolder
from capsnmt.runs.trained_rows import (
    TrainedRow,
    check_one_row,
    differences_between,
    incomparable,
)

References = Mapping[str, Sequence[Path]]
MEASURES = ("accuracy", "macro_f1")  # of sentence classifiers


@dataclass(frozen=True)
class MeanScore(Spread):
    """A score over the seeds of a row, with its signature if sacreBLEU computed it."""

    signature: Optional[str] = None  # or those of its seeds


class Summary(Record, frozen=True, kw_only=True, rename="kebab"):
    """Means over the seeds of a row: ``summary.json``."""

    row: str
    seeds: List[int]  # the finished ones
    left_out_seeds: List[int]  # finished ones with other settings
    scores: Dict[str, Dict[str, MeanScore]]  # test set (or split) -> metric -> score
    task: Optional[str] = None  # the probing task, if it is one
    updates: Optional[int] = None  # at most, of the row's own training; None: epochs end it
    # with the baseline's finished seeds: of each test set, and of the mean over several
    comparisons: Dict[str, List[Comparison]] = field(default_factory=dict)
    init_from: Optional[str] = None  # the row that it starts from
    initial_updates: Optional[int] = None  # of that row, at most, which come on top


def summarise(folder: RunFolder, references: References = MappingProxyType({})) -> Summary:
    """Write ``summary.json`` over all finished seeds of a row, and return it.

    With the ``references`` of each test set, the row is compared with its baseline.

    Those with other settings than the run in ``folder`` are left out.
    """
    given = FinishedRun(folder.path)
    finished = {given.seed: given, **_finished(folder.row)}
    ours = finished[given.seed]  # not a copy of it
    seeds = sorted(seed for seed, run in finished.items() if not differences_between(ours, run))
    row = TrainedRow(ours.row, [finished[seed] for seed in seeds])
    for what in incomparable([row]):
        say(f"warning: the mean is of seeds with different {what}")
    initial = ours.training.initial
    initials = [finished[seed].training.initial for seed in seeds]
    summary = Summary(
        row=ours.row,
        seeds=seeds,
        left_out_seeds=sorted({*finished} - {*seeds}),
        scores=_means(row),
        comparisons=_comparisons(row, references) if references else {},
        task=ours.config.task,
        updates=ours.settings.updates,
        init_from=None if initial is None else initial.row,
        initial_updates=max((each.updates for each in initials if each), default=None),
    )
    records.write(folder.summary, summary)
    return summary


def lines(summary: Summary) -> Iterator[str]:
    """Yield the summary as text: the training if it had an initial model, then each test set."""
    if summary.init_from is not None:
        own = "" if summary.updates is None else f", trained for up to {summary.updates:,} more"
        initial = f"{summary.init_from} (up to {summary.initial_updates:,} updates)"
        yield f"initialised from {initial}{own}"
    if summary.left_out_seeds:
        others = ", ".join(map(str, summary.left_out_seeds))
        yield f"left out, as they are of another experiment: seed(s) {others}"
    for test_set, metrics in summary.scores.items():
        texts = []
        for metric, score in metrics.items():
            decimals = 2 if metric in MEASURES else digits(metric)
            deviation = "" if score.std is None else f" +- {score.std:.{decimals}f}"
            texts.append(f"{metric} {score.mean:.{decimals}f}{deviation}")
        yield f"{test_set}: {', '.join(texts)} ({len(summary.seeds)} seed(s))"
        for each in summary.comparisons.get(test_set, []):
            if each.corrected_p_value is not None and each.interval is not None:
                ends = " to ".join(f"{end:+.2f}" for end in each.interval)
                yield (
                    f"{test_set}: {each.metric} {each.delta:+.2f} ({ends}) to {each.baseline}, "
                    f"p {each.corrected_p_value:.4f}"
                )


def _finished(row: Path) -> Dict[int, FinishedRun]:
    """Return the finished seeds of a row, not a copy that lies beside its seed.

    Those whose records cannot be read, as of an older version, are named: a seed that has just been
    trained does not fail for them.
    """
    found: Dict[int, FinishedRun] = {}
    for path in (path for path in row.glob("seed-*") if RunFolder(path).is_finished):
        try:
            run = FinishedRun(path)
            known = run.training and (run.result if run.settings.classifies else run.scores)
            if known and path.name == f"seed-{run.seed}":
                found[run.seed] = run
        except ConfigurationError as error:
            say(f"warning: no mean has {path}: {error}")
    return found


def _comparisons(row: TrainedRow, references: References) -> Dict[str, List[Comparison]]:
    """Return how a row differs from its baseline, if that has finished seeds of one experiment."""
    first = row.runs[0]
    name = first.config.baseline
    if name is None:
        return {}
    seeds = _finished(first.folder.row.parent / name)
    runs = [
        run for _, run in sorted(seeds.items()) if not [*differing_texts(first, run, "reference")]
    ]
    if not runs:
        return {}
    both = [TrainedRow(name, runs), row]

    from capsnmt.runs.comparison import compare_rows

    try:
        for run in runs:
            check_one_row(runs[0], run, "no difference to their mean is tested")
        for what in incomparable(both):
            say(
                f"warning: {first.row} and {name} have different {what}: they differ not in their "
                f"systems alone"
            )
        found = compare_rows(both, references)
    except ConfigurationError as error:
        say(f"warning: {error}")
        found = None
    if found is None:
        return {}
    several = {"mean": found.comparisons} if len(found.test_sets) > 1 else {}
    return {**{key: each.comparisons for key, each in found.test_sets.items()}, **several}


def _means(row: TrainedRow) -> Dict[str, Dict[str, MeanScore]]:
    first = row.runs[0]
    if first.settings.classifies:
        found = {name: row.measure(attrgetter(name)) for name in MEASURES}
        return {"test": {name: MeanScore(**vars(each)) for name, each in found.items() if each}}
    return {
        test_set: {
            metric: MeanScore(
                **vars(row.score(test_set, metric)),
                signature=" and ".join(signatures(row.runs, test_set, metric)),
            )
            for metric in common_metrics([run.output(test_set) for run in row.runs])
            if metric not in COMPARABLE
        }
        for test_set in first.settings.data.test_sets
    }

"""Mean and standard deviation of a row's scores over its seeds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from capsnmt import records
from capsnmt.evaluation.metrics import digits
from capsnmt.evaluation.scores import common_metrics
from capsnmt.evaluation.seeds import Spread, spread
from capsnmt.runs.comparison import differences
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.json_objects import json_key
from capsnmt.runs.records import Description

MEASURES = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class MeanScore(Spread):
    """A score over the seeds of a row, with its signature if sacreBLEU computed it."""

    signature: Optional[str] = None


@dataclass(frozen=True)
class Summary:
    """Means over the seeds of a row: ``summary.json``.

    Attributes:
        row: the name of the configuration.
        seeds: the finished seeds.
        left_out_seeds: finished seeds that were trained with other settings.
        scores: test set (or split) -> metric -> score.
        task: the probing task, if it is one.
        updates: the updates that the row's own training asks for; ``None`` if epochs end it.
        init_from: the row that it starts from, if there is one.
        initial_updates: the updates of that row, which come on top.
    """

    row: str
    seeds: Sequence[int]
    left_out_seeds: Sequence[int]
    scores: Mapping[str, Mapping[str, MeanScore]]
    task: Optional[str] = None
    updates: Optional[int] = None
    init_from: Optional[str] = None
    initial_updates: Optional[int] = None

    def to_json(self) -> Dict[str, Any]:
        """The content of ``summary.json``."""
        return {json_key(name): value for name, value in asdict(self).items()}


def summarise(reference: RunFolder) -> Summary:
    """Write ``summary.json`` over all finished seeds of a row, and return it.

    Args:
        reference: the run of one seed; seeds trained with other settings are left out.
    """
    ours = reference.read_description()
    finished = {run: run.read_description() for run in _seeds(reference.row) if run.is_finished}
    runs = {
        description.seed: run
        for run, description in finished.items()
        if _same_training(ours, description)
    }
    seeds = sorted(runs)
    summary = Summary(
        ours.row,
        seeds,
        sorted({each.seed for each in finished.values()} - set(seeds)),
        _means(ours, [runs[seed] for seed in seeds]),
        ours.task,
        ours.train.get("max-update"),
        None if ours.initial is None else ours.initial.row,
        None if ours.initial is None else ours.initial.updates,
    )
    records.write(reference.summary, summary.to_json())
    return summary


def lines(summary: Summary) -> Iterator[str]:
    """Yield the summary as text: the training if it had an initial model, then each test set."""
    if summary.init_from is not None:
        own = "" if summary.updates is None else f", trained for {summary.updates:,} more"
        yield f"initialised from {summary.init_from} ({summary.initial_updates:,} updates){own}"
    for test_set, metrics in summary.scores.items():
        texts = []
        for metric, score in metrics.items():
            decimals = 2 if metric in MEASURES else digits(metric)
            deviation = "" if score.std is None else f" +- {score.std:.{decimals}f}"
            texts.append(f"{metric} {score.mean:.{decimals}f}{deviation}")
        yield f"{test_set}: {', '.join(texts)} ({len(summary.seeds)} seed(s))"


def _seeds(row: Path) -> List[RunFolder]:
    return [RunFolder(path) for path in row.glob("seed-*") if RunFolder(path).exists]


def _same_training(ours: Description, other: Description) -> bool:
    changed = {key for key, _, _ in differences(ours, other)} - {"seed"}
    budgets = {str(_budget(each)) for each in (ours, other)}
    return not changed and len(budgets) == 1


def _budget(description: Description) -> List[Any]:
    """Return the settings that may change when a training resumes, but not within a mean."""
    train = description.train
    test_sets = None if description.classifies else description.test_sets
    initial = description.initial
    before = None if initial is None else initial.updates
    return [train.get("max-update"), train.get("max-epoch"), test_sets, before]


def _means(ours: Description, runs: Sequence[RunFolder]) -> Dict[str, Dict[str, MeanScore]]:
    if ours.classifies:
        measures = [run.read_result().test for run in runs]
        return {
            "test": {name: _mean([getattr(each, name) for each in measures]) for name in MEASURES}
        }
    evaluations = [run.read_scores() for run in runs]
    means: Dict[str, Dict[str, MeanScore]] = {}
    for test_set in ours.test_sets:
        outputs = [each[test_set].system(ours.row).outputs[0] for each in evaluations]
        means[test_set] = {
            metric: _mean(
                [output.score(metric).score for output in outputs],
                outputs[0].score(metric).signature,
            )
            for metric in common_metrics(outputs)
        }
    return means


def _mean(values: Sequence[float], signature: Optional[str] = None) -> MeanScore:
    return MeanScore(**vars(spread(values)), signature=signature)

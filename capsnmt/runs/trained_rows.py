"""Rows of the papers' tables, and sweeps: runs with different seeds, rows with other values."""

import itertools
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.configurations import Settings
from capsnmt.evaluation.scores import Spread, common_metrics, spread
from capsnmt.files import content_of
from capsnmt.records import as_number
from capsnmt.runs.finished import FinishedRun, differing_texts, distinct_names, signatures
from capsnmt.runs.records import Measures, RunConfig, TrainingRecord

# Flags of fairseq-train that end a training, but for patience, which counts validations.
ENDS = ("max-epoch", "max-update", "stop-min-lr", "stop-time-hours")
# Those that may change when a training resumes: they change no update, unless a schedule of the
# learning rate reads them.
FREE_FLAGS = {
    *ENDS,
    *("keep-best-checkpoints", "keep-interval-updates", "keep-last-epochs", "log-interval"),
    *("no-epoch-checkpoints", "no-progress-bar", "num-workers", "save-interval"),
    *("save-interval-updates", "tensorboard-logdir", "validate-interval"),
    *("validate-interval-updates", "wandb-project"),
}
# What a learning rate schedule takes from max-update, unless the flag is given; where phase-ratio
# is, tri_stage takes its phases from it.
PERIODS = {"cosine": "lr-period-updates", "polynomial_decay": "total-num-update"}
FREE_IN_GENERATION = {"batch-size", "max-sentences", "max-tokens"}  # they change no translation
FREE_IN_SCORING = {"metrics", "significance", "samples"}  # they change no score
# what no system of a comparison should have to itself, by the beginnings of keys: updates, their
# text and their end, and what makes text of a model; how subwords are joined depends on the data
OF_NO_SYSTEM = (
    *(f"train.{flag}" for flag in (*ENDS, "patience")),
    *("batch.", "average.", "generate.", "score.detokenize"),
)


def training_differences(
    before: RunConfig, now: RunConfig, trained: TrainingRecord, training: TrainingRecord
) -> Iterator[Tuple[str, Any, Any]]:
    """Return key, old value and new value of each setting that makes two trainings different.

    Settings that may change when a training resumes are not compared: ``FREE_FLAGS``, the device
    (the update is the same on every device), the precision, generation and scoring. The data are
    compared by the content of their files; of those that an older record does not have, nothing is
    known.
    """
    # a file that both records have may lie elsewhere
    known = {f"train.{name.removeprefix('--')}" for name in trained.data.keys() & training.data}
    for difference in _differing(_training(before), _training(now), as_number):
        if difference[0] not in known:
            yield difference
    yield from file_differences(trained.vocabulary, training.vocabulary)
    yield from data_differences(trained, training)


def file_differences(
    before: Mapping[str, str], now: Mapping[str, str]
) -> Iterator[Tuple[str, Any, Any]]:
    """Return name and contents of each file, of which signatures are given, that is another.

    Twelve digits of a checksum are enough for a reader.
    """
    was, new = (
        {f"data: {name}": content_of(known)[:12] for name, known in signatures.items()}
        for signatures in (before, now)
    )
    yield from _differing(was, new)


def data_differences(before: TrainingRecord, now: TrainingRecord) -> Iterator[Tuple[str, Any, Any]]:
    """Return the same of the texts and of the files that flags name.

    Of those that an older record does not have, nothing is known.
    """
    was, new = (
        {name: one[name] for name in one if name in other or (other and name[0] != "-")}
        for one, other in ((before.data, now.data), (now.data, before.data))
    )
    yield from file_differences(was, new)


def _differing(
    old: Dict[str, Any], new: Dict[str, Any], read: Callable[[Any], Any] = str
) -> Iterator[Tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        if read(old.get(key)) != read(new.get(key)):
            yield key, old.get(key), new.get(key)


def _training(config: RunConfig) -> Dict[str, Any]:
    settings, train = config.settings, config.settings.train
    period = PERIODS.get(str(train.get("lr-scheduler")))
    follows = (period is not None and period not in train) or "phase-ratio" in train
    bound = {"max-update"} if follows else set()
    if train.get("lr-scheduler") == "reduce_lr_on_plateau":  # its rate follows the validations
        bound |= {"save-interval", "validate-interval", "validate-interval-updates"}
    return {
        "arch": settings.arch,
        "data.source-lang": settings.data.source_lang,
        "data.target-lang": settings.data.target_lang,
        "init-from": settings.init_from,
        "seed": config.seed,
        "task": config.task,
        "batch.tokens-per-update": settings.batch.tokens_per_update,
        "batch.sentences-per-update": settings.batch.sentences_per_update,
        **{
            f"train.{key}": value
            for key, value in train.items()
            if key not in FREE_FLAGS - bound and value is not False  # which leaves the flag out
        },
    }


def differences_between(one: FinishedRun, other: FinishedRun) -> List[Tuple[str, Any, Any]]:
    """Return key and values of what must be equal in two runs of one row, and is not.

    That is the training, with its end, which may change when a training resumes, and all that
    makes the scores; of two probing tasks, all but the files of the tasks.
    """
    found = [*training_differences(one.config, other.config, one.training, other.training)]
    was, new = ({**_budget_and_scores(x.settings), **_start(x)} for x in (one, other))
    found += _differing(was, new, as_number)
    if not one.settings.classifies:
        found += differing_texts(one, other, "reference", "source")
    free = {"seed"}
    if one.config.task != other.config.task:
        files = {*one.training.vocabulary, *other.training.vocabulary}
        free |= {"task", *(f"data: {name}" for name in files)}
    return [each for each in found if each[0] not in free]


def row_differences(one: RunConfig, other: RunConfig) -> List[Tuple[str, Any, Any]]:
    """Return key and values of the settings in which two rows differ, by one run of each."""
    was, new = ({**_training(x), **_budget_and_scores(x.settings)} for x in (one, other))
    return [each for each in _differing(was, new, as_number) if each[0] not in ("seed", "task")]


def check_one_row(first: FinishedRun, run: FinishedRun, fix: str) -> None:
    """Raise unless two runs of one row are of the same experiment."""
    for key, one, other in differences_between(first, run):
        raise ConfigurationError(
            f"{run.folder} has {key} {other}, but {first.folder}, of the same row, has {one}; {fix}"
        )


def _start(run: FinishedRun) -> Dict[str, int]:
    initial = run.training.initial
    # D: patience ends a training, and that of its initial model, where it will
    if initial is None or run.settings.train.get("patience"):
        return {}
    return {"updates of the initial model": initial.updates}


def finished_differences(before: Settings, now: Settings) -> Iterator[Tuple[str, Any, Any]]:
    """Return key and values of what a training may go on with, but has made a finished model.

    Other values in its ``config.json`` would put it into the mean of seeds that have them.
    """
    flags = sorted({*_intervals(before), *_intervals(now)})
    was, new = (
        {"precision": x.precision, **{f"train.{flag}": x.train.get(flag) for flag in flags}}
        for x in (before, now)
    )
    yield from _differing(was, new, as_number)


def _intervals(settings: Settings) -> List[str]:
    """Return the flags whose intervals choose the checkpoints that the model is made of."""
    patience = settings.train.get("patience")
    by_validation = settings.classifies or "best" in settings.average
    found = []
    if settings.average or patience or by_validation:  # fairseq validates what it saves
        found += ["save-interval", "save-interval-updates"]
    if patience or by_validation:
        found += ["validate-interval", "validate-interval-updates"]
    return found


def _budget_and_scores(settings: Settings) -> Dict[str, Any]:
    flags = [*ENDS, *_intervals(settings)]
    ends = {f"train.{key}": settings.train.get(key) for key in flags}
    parts = {
        "average": settings.average,
        "data.test-sets": settings.data.test_sets,
        "generate": settings.generate,
        "score": records.plain(settings.score) or {},
    }
    free = {"generate": FREE_IN_GENERATION, "score": FREE_IN_SCORING}
    scores = {
        f"{part}.{key}": value
        for part, each in parts.items()
        for key, value in each.items()
        if key not in free.get(part, ())
    }
    return {**ends, **scores}


@dataclass(frozen=True)
class TrainedRow:
    """A row of a table: all its runs, in the order of their seeds."""

    name: str
    runs: Sequence[FinishedRun]

    def score(self, test_set: str, metric: str = "bleu") -> Spread:
        """Mean and standard deviation (n - 1) over the seeds."""
        return spread([run.output(test_set).scores[metric].score for run in self.runs])

    def measure(self, value: Callable[[Measures], Optional[float]]) -> Optional[Spread]:
        """The same of a measure of classifiers; ``None`` if no run has it."""
        values = [value(run.measures) for run in self.runs]
        present = [number for number in values if number is not None]
        return spread(present) if present else None

    @property
    def made_with(self) -> Dict[str, List[str]]:
        """The known precisions, for which ``auto`` may have chosen others, and versions."""
        parts = [(run, part) for run in self.runs for part in run.training.parts]
        asked = {part.precision or run.settings.precision or "fp32" for run, part in parts}
        found = {"precisions": asked - {"auto"}}  # of a record that says no more
        for name in ("torch", "fairseq"):  # what computes a training
            found[f"versions of {name}"] = {part.versions.get(name, "") for _, part in parts} - {""}
        return {what: sorted(each) for what, each in found.items()}

    def by_length(self, test_set: str) -> Dict[str, Spread]:
        """BLEU of each bucket of source lengths that has sentences, over the seeds."""
        found = [run.output(test_set).bleu_by_length for run in self.runs]
        return {bucket: spread([each[bucket] for each in found]) for bucket in found[0]}

    @property
    def tokens_per_second(self) -> Optional[float]:
        """Target tokens per second of training, averaged over the seeds."""
        found = [run.curve.tokens_per_second for run in self.runs]
        measured = [speed for speed in found if speed is not None]
        return spread(measured).mean if len(measured) == len(found) else None

    def speed_against(self, baseline: "TrainedRow") -> Optional[float]:
        """Training speed relative to the baseline's.

        **D**: ``None`` unless all runs had the same precision and batches, and all their parts the
        same device, number of threads and versions: any other ratio compares machines, code or the
        size of a pass, not models.
        """
        parts = [(run, x) for run in [*self.runs, *baseline.runs] for x in run.training.parts]
        # older records have no threads
        threads = {x.threads or run.config.device.threads for run, x in parts}
        machines = {
            (x.device, x.device_name, x.versions.get("capsnmt"), x.versions.get("malloc"))
            for _, x in parts
        }
        batches = {run.settings.batch for run, _ in parts}
        alike = all(len(each) == 1 for each in (threads, machines, batches))
        alike = alike and not [*made_otherwise([self, baseline])]
        own, other = self.tokens_per_second, baseline.tokens_per_second
        if not alike or own is None or not other:
            return None
        return own / other


def incomparable(rows: Sequence[TrainedRow]) -> Iterator[str]:
    """Yield what must be equal for a comparison of rows (Marie et al. 2021), and is not."""
    runs = first, *others = [run for row in rows for run in row.runs]
    sets = () if first.settings.classifies else first.scores
    for test_set in (each for each in sets if all(each in run.scores for run in others)):
        for key, name in common_metrics([run.output(test_set) for run in runs]).items():
            if len(signatures(runs, test_set, key)) > 1:
                yield f"signatures of {name} on {test_set}"
    if any(run.training.vocabulary != first.training.vocabulary for run in others):
        yield "dictionaries"
    elif any([*data_differences(first.training, run.training)] for run in others):
        yield "training or validation texts"
    settings: Dict[str, str] = {}
    for run in others:
        for key, one, other in row_differences(first.config, run.config):
            settings.setdefault(key, f"{key} ({first.row} {one}; {run.row} {other})")
    yield from (settings[key] for key in sorted(settings) if key.startswith(OF_NO_SYSTEM))
    yield from made_otherwise(rows)


def made_otherwise(rows: Sequence[TrainedRow]) -> Iterator[str]:
    """Yield the precisions and versions that are not the same in all rows, with those of each."""
    for what in rows[0].made_with:
        known = {row.name: row.made_with[what] for row in rows}
        if len({each for found in known.values() for each in found}) > 1:
            texts = (f"{name} {' and '.join(found)}" for name, found in known.items())
            yield f"{what} ({'; '.join(texts)})"


def source_lengths(
    rows: Sequence[TrainedRow], test_set: str
) -> Optional[Tuple[str, Mapping[str, int]]]:
    """Return the unit and the buckets of source lengths that all rows were scored with.

    **D**: a length is that of the source as a system reads it. ``None`` for systems with different
    subwords: their buckets hold different sentences.
    """
    scores = [run.scores[test_set] for row in rows for run in row.runs]
    unit, segments = first = scores[0].length_unit, scores[0].segments_by_length
    if unit is None or any(first != (each.length_unit, each.segments_by_length) for each in scores):
        return None
    return unit, segments


def group(runs: Sequence[FinishedRun]) -> List[TrainedRow]:
    """Group runs into rows, in the order of the first run of each.

    Several runs of a row with the same seed are different experiments and remain separate. Runs of
    one row with different settings are an error: their mean has no meaning.
    """
    rows: Dict[str, List[Tuple[str, FinishedRun]]] = {}
    for name, run in zip(distinct_names(runs), runs):
        rows.setdefault(run.row, []).append((name, run))
    found: List[TrainedRow] = []
    for members in rows.values():
        if len({run.seed for _, run in members}) < len(members):
            found += [TrainedRow(name, [run]) for name, run in members]
        else:
            found.append(_one_row([run for _, run in members]))
    return found


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
        labels = {as_number(point.value): point.label for point, _ in members}  # 1e-3 is 0.001
        values = sorted(labels, key=_order)
        curves: Dict[str, Dict[str, TrainedRow]] = {point.row: {} for point, _ in members}
        for row, value in itertools.product(curves, values):
            known = [run for x, run in members if (x.row, as_number(x.value)) == (row, value)]
            if known:
                curves[row][labels[value]] = _one_row(known)
        sweeps.append(FinishedSweep(flag, [labels[value] for value in values], curves, baselines))
    return sweeps


def _one_row(runs: Sequence[FinishedRun]) -> TrainedRow:
    """Return the row of some runs; raise if a seed is there twice, or another experiment."""
    first, *others = seeds = sorted(runs, key=lambda run: run.seed)
    if len({run.seed for run in seeds}) < len(seeds):
        raise ConfigurationError(
            f"{first.folder.row} has a seed twice, so that its mean in a sweep is of no row; "
            f"name its runs, each seed once"
        )
    for run in others:
        check_one_row(first, run, "report them separately")
    return TrainedRow(first.row, seeds)


def _order(value: Any) -> Tuple[bool, float]:
    """Return the key that sorts values: numbers by size, then texts as they occur."""
    return (False, value) if isinstance(value, float) else (True, float(value is True))

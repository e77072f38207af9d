"""Configure the rows that a launch names, and make a run of each."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.launch.classification import ClassificationRun
from capsnmt.launch.config import Experiment, find, load, named_rows, override, require_complete
from capsnmt.launch.devices import Device
from capsnmt.launch.options import LaunchOptions
from capsnmt.launch.run import Run, RunData
from capsnmt.launch.sweep import swept
from capsnmt.launch.translation import TranslationRun
from capsnmt.runs.records import SENTENCE_TASKS
from capsnmt.sentences.probing.tasks import TASKS
from capsnmt.settings import read_yaml

ALL = "all"


def rows(options: LaunchOptions) -> List[Optional[str]]:
    """Return the rows to run, the baseline first; ``None`` if neither rows nor a config is given.

    Raises:
        ConfigurationError: two options exclude each other, or there is no such row.
    """
    if options.rows is None:
        return [options.config]
    exclusive = {"config": options.config, "arch": options.arch, "name": options.name}
    for flag, value in exclusive.items():
        if value is not None:
            raise ConfigurationError(f"--rows and --{flag} exclude each other: give one of them")
    if options.dataset is None:
        raise ConfigurationError(f"--rows {','.join(options.rows)}: give --dataset DATASET, too")
    known = rows_of(options.dataset)
    for row in options.rows:
        if row not in [ALL, *known]:
            raise ConfigurationError(
                f"--rows: {options.dataset} has no row {row!r}: choose from {', '.join(known)} or "
                f"all"
            )
    chosen = known if ALL in options.rows else options.rows
    return sorted(chosen, key=lambda row: row != options.baseline)


def rows_of(dataset: str) -> List[str]:
    """Return the rows of a data set: its configurations, except those that only others extend.

    Raises:
        ConfigurationError: there is no such data set.
    """
    names = named_rows(dataset)
    files = {name.split("/")[1]: read_yaml(find(name)) for name in names}
    extended = {str(settings.get("extends")).rpartition("/")[2] for settings in files.values()}
    return [name for name, settings in files.items() if "paper" in settings or name not in extended]


def configure(options: LaunchOptions, row: Optional[str]) -> Experiment:
    """Return the configuration of a row, with the options that override it.

    Args:
        options: the options of the launch.
        row: the row; ``None`` for the data set's own settings or its row ``baseline``.

    Raises:
        ConfigurationError: it does not exist, is wrong or incomplete.
    """
    if row is None and options.dataset is None:
        if options.arch is None:
            raise ConfigurationError("give --config ROW or --arch ARCH (with --dataset DATASET)")
        raise ConfigurationError(
            f"--arch {options.arch}: give --dataset DATASET or --config ROW, too"
        )
    if options.dataset is not None and not (row and Path(row).is_file()):
        named_rows(options.dataset)
    path = find(row or ("base" if options.arch else "baseline"), options.dataset)
    named = row or not options.arch
    name = path.stem if named else options.arch
    experiment = load(path, name if options.name is None else options.name)
    if options.dataset and experiment["dataset"] != options.dataset:
        raise ConfigurationError(
            f"--config {row}: is for {experiment['dataset']}, not {options.dataset}"
        )
    if options.arch is not None:
        experiment.put("arch", options.arch, "--arch")
    for key, language in zip(("data.source-lang", "data.target-lang"), options.pair or ()):
        experiment.put(key, language, "--pair")
    override(experiment, options.assignments)
    if options.max_update is not None:
        experiment.put("train.max-update", options.max_update, "--max-update")
    require_complete(experiment)
    return experiment


def configure_sweep(options: LaunchOptions, row: Optional[str]) -> List[Experiment]:
    """Return the configurations of a row: one for each value of a sweep, or only its own.

    With several rows, a sweep does not change the baseline.

    Raises:
        ConfigurationError: as :func:`configure` and :func:`.sweep.swept`.
    """
    experiment = configure(options, row)
    unchanged = options.rows is not None and row == options.baseline
    if options.sweep is None or unchanged:
        return [experiment]
    return swept(experiment, options.sweep)


def tasks_of(experiment: Experiment, wanted: Optional[Sequence[str]]) -> List[Optional[str]]:
    """Return the probing tasks to run; ``[None]`` for an experiment without tasks.

    Args:
        experiment: the experiment.
        wanted: the tasks that the user chose; by default those of the data.
    """
    if experiment["train.task"] != "probing":
        return list(wanted) if wanted else [None]
    if wanted:
        return list(wanted)
    own = experiment["data.tasks"]
    return [name.strip() for name in own.split(",")] if own else list(TASKS)


def make_run(
    options: LaunchOptions,
    experiment: Experiment,
    device: Device,
    seed: int,
    task: Optional[str] = None,
) -> Run:
    """Return one seed of an experiment, on one task."""
    output = options.output or Path("runs") / experiment["dataset"]
    folder = options.prepared or output / "data"
    data = RunData(folder, options.data, options.offline, tuple(options.mirrors))
    # With several rows, --baseline applies to all rows except the baseline itself.
    baseline = None if options.rows and options.baseline == experiment.row else options.baseline
    kind = ClassificationRun if experiment["train.task"] in SENTENCE_TASKS else TranslationRun
    return kind(experiment, data, output, device, seed, baseline, task)

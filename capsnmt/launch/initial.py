"""Rows that start from the trained model of another row: ``init-from`` in a configuration.

The launcher finds that other run finished, or executes it first. Its configuration is that of the
row as it stands, with the launch's seed, places and device.

**D**: of the options that override a configuration, only those that choose the data apply to both
rows (``--pair``, ``--set data...``). A row is often changed to suit its start, and a start that
changed with it would be another one for each row. If the launch names both rows, all its options
apply to both, as to any rows.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.launch import flags
from capsnmt.launch.assembly import configure, make_run
from capsnmt.launch.config import Experiment, find
from capsnmt.launch.options import LaunchOptions, of_data
from capsnmt.launch.run import Run
from capsnmt.runs.comparison import differences
from capsnmt.runs.records import Description

KEY = "init-from"
# What two rows must share to read the same data; the test sets may differ.
SAME_DATA = ("dataset", *(f"data.{key}" for key in ("recipe", "corpora", "options")))
SAME_DATA += ("data.source-lang", "data.target-lang", "train.task")
WIDTHS = ("encoder_embed_dim", "decoder_embed_dim")


def with_initial_runs(options: LaunchOptions, runs: Sequence[Run]) -> List[Run]:
    """Return runs that know the runs they start from.

    Raises:
        ConfigurationError: such a row does not exist, starts from itself, reads other data, or is
            finished with other settings.
    """
    named = {run.folder.path: run for run in runs}
    return [_with_initial(options, run, named, (run.experiment.row,)) for run in runs]


def in_order(runs: Sequence[Run]) -> List[Run]:
    """Return runs, each after the one that it starts from.

    Args:
        runs: the runs that the command line names; of the others that they start from, those that
            are not finished are added.
    """
    named = {run.folder.path for run in runs}
    ordered: Dict[Path, Run] = {}

    def add(run: Run) -> None:
        initial = run.initial
        if initial is not None and (initial.folder.path in named or not initial.is_finished):
            add(initial)
        ordered.setdefault(run.folder.path, run)

    for run in runs:
        add(run)
    return list(ordered.values())


def check_initial_run(run: Run) -> None:
    """Raise if no tensor of the model that a run starts from can have the shape of its own.

    Raises:
        ConfigurationError: the two models have other widths.
    """
    initial = run.initial
    if initial is None:
        return
    ours, theirs = _widths(run), _widths(initial)
    both = [pair for pair in zip(ours, theirs) if None not in pair]
    if both and all(own != other for own, other in both):
        raise ConfigurationError(
            f"{_origin(run.experiment)}: has width {theirs[0]}, but {run.experiment.row} has width "
            f"{ours[0]}: name a row of the same size"
        )


def _widths(run: Run) -> List[Optional[int]]:
    args = flags.check_train(run.experiment, run.train().arguments)
    return [getattr(args, width, None) for width in WIDTHS]


def _with_initial(
    options: LaunchOptions, run: Run, named: Mapping[Path, Run], chain: Tuple[str, ...]
) -> Run:
    experiment = run.experiment
    if experiment[KEY] is None:
        return run
    origin = _origin(experiment)
    if experiment["train.init-from"] is not None:
        raise ConfigurationError(
            f"{experiment.where('train.init-from')}: train.init-from: {KEY} names a row to start "
            f"from as well: drop one of them"
        )
    file = _find(experiment)
    row = file.stem
    if row in chain:
        raise ConfigurationError(
            f"{origin}: {' starts from '.join([*chain, row])}: name a row that does not start from "
            f"this one"
        )
    initial = named.get(run.of(row).path) or _make(options, run, file)
    for key in SAME_DATA:
        if experiment[key] != initial.experiment[key]:
            raise ConfigurationError(
                f"{origin}: has {key} {initial.experiment[key]}, but {experiment.row} has "
                f"{experiment[key]}: name a row that reads the same data"
            )
    if initial.file is not None and initial.folder.is_finished:
        finished = _as_finished(run, initial)
        if finished.is_finished:
            return dataclasses.replace(run, initial=finished)
    initial = _with_initial(options, initial, named, (*chain, row))
    return dataclasses.replace(run, initial=initial)


def _make(options: LaunchOptions, run: Run, file: Path) -> Run:
    """Return the run of a row as it stands."""
    own = dataclasses.replace(
        options,
        dataset=None,
        rows=None,
        arch=None,
        name=None,
        sweep=None,
        max_update=None,
        baseline=None,
        assignments=[each for each in options.assignments if of_data(each)],
        output=run.output,
    )
    made = make_run(own, configure(own, str(file)), run.device, run.seed, run.task)
    return dataclasses.replace(made, file=file)


def _as_finished(run: Run, initial: Run) -> Run:
    """Return a finished run with the settings that its folder records.

    **D**: its number of updates need not be that of the configuration, and a setting that the
    command line gives to the other row may have any value.
    """
    recorded = initial.folder.read_description()
    standing = Description(
        row=recorded.row,
        seed=initial.seed,
        settings=initial.experiment.settings,
        task=initial.task,
        vocabulary=recorded.vocabulary,  # compared when the training starts
    )
    for key, old, new in differences(recorded, standing):
        if not run.experiment.where(key).startswith("--"):
            raise ConfigurationError(
                f"{_origin(run.experiment)}: {initial.folder}: was trained with {key} {old}, not "
                f"{new}: give another --output, or delete the folder"
            )
    experiment = Experiment(initial.experiment.row, dict(recorded.settings))
    return dataclasses.replace(initial, experiment=experiment)


def _find(experiment: Experiment) -> Path:
    """Return the file of the row to start from: a sibling of the configuration, or as elsewhere."""
    name, where = experiment[KEY], experiment.where(KEY)
    sibling = Path(where).parent / f"{name}.yaml"
    if where.endswith((".yaml", ".yml")) and sibling.is_file():
        return sibling
    return find(name, experiment["dataset"], f"{where}: {KEY}:")


def _origin(experiment: Experiment) -> str:
    return f"{experiment.where(KEY)}: {KEY}: {experiment[KEY]}"

"""From the flags of a launch to its runs, in the order in which they depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.files import check_file_name, check_output_folder
from capsnmt.launch import classification, configurations, own_data, settings, translation
from capsnmt.launch.options import Options
from capsnmt.launch.run import Run
from capsnmt.launch.settings import Settings
from capsnmt.process import package_path
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import Device, RunConfig, SweepPoint
from capsnmt.sentences.senteval import TASKS

ALL = "all"


def kind(run: Run) -> Any:
    """Return the module with the steps of a run: `classification` or `translation`."""
    return classification if run.settings.classifies else translation


def resolve(options: Options, device: Device, argv: Sequence[str]) -> List[Run]:
    """Return the runs of a launch, seed by seed, so that an interrupted launch has complete seeds.

    Within a seed a run follows those that it starts from and is tested against.

    Args:
        options: what to launch.
        device: what each run is trained on.
        argv: the command line, for the record.

    Raises:
        ConfigurationError: a configuration does not exist, is wrong or incomplete.
    """
    for flag, path in (("--output", options.output), ("--prepared", options.prepared)):
        if path is not None:
            check_output_folder(path, flag)
    if options.data is not None and not options.data.exists():
        raise ConfigurationError(f"--data {options.data}: there is no such folder")
    if options.baseline is not None:
        check_file_name(options.baseline, "--baseline")
    rows = [point for row in configure(options) for point in _swept(options, *row)]
    runs = [
        _run(options, name, chosen, point, device, seed, task, argv)
        for seed in options.seeds
        for name, chosen, point in rows
        for task in _tasks(chosen, options.tasks)
    ]
    return _in_order(runs)


def configure(options: Options) -> List[Tuple[str, Settings]]:
    """Return name and settings of the rows that a launch names, with its flags applied.

    Raises:
        ConfigurationError: as :func:`resolve`.
    """
    if own_data.applies(options):
        return [(name, _finish(options, name, merged)) for name, merged in own_data.rows(options)]
    rows = []
    for row in _names(options):
        path = configurations.find(row or ("base" if options.arch else "baseline"), options.dataset)
        merged = configurations.load(path)
        if options.dataset and merged.get("dataset", options.dataset) != options.dataset:
            raise ConfigurationError(
                f"--config {row}: is for {merged['dataset']}, not {options.dataset}"
            )
        if options.arch is not None:
            settings.override(merged, "arch", options.arch, "--arch")
        named = path.stem if row or not options.arch else options.arch
        name = named if options.name is None else options.name
        rows.append((name, _finish(options, name, merged)))
    return rows


def check(runs: Sequence[Run]) -> None:
    """Raise unless each command of the runs will understand its arguments.

    The first run of each row and task is checked: other seeds have the same flags.

    Raises:
        ConfigurationError: naming the row and the flag, or the package that hides this one.
    """
    package_path()
    firsts: Dict[Path, Run] = {}
    for run in runs:
        firsts.setdefault(run.folder.row, run)
    for run in firsts.values():
        if run.config.baseline == run.config.row:
            raise ConfigurationError(
                f"--baseline {run.config.baseline}: is the row itself: name another"
            )
        if run.config.initial == run.config.row:
            raise ConfigurationError(
                f"{run.config.row}: init-from: {run.config.initial}: is the row itself: name "
                f"another"
            )
        try:
            kind(run).check_settings(run)
        except ConfigurationError as error:
            if run.config.sweep is None:
                raise
            raise ConfigurationError(f"--sweep {run.config.sweep.flag}: {error}") from None


def check_before(run: Run, planned: Sequence[Path]) -> None:
    """Raise unless the runs exist that a run starts from and is tested against.

    Args:
        run: the run.
        planned: folders of runs that are launched with it, or wait in the queue.

    Raises:
        ConfigurationError: naming the folder and what to do.
    """
    kind(run).check_ready(run)
    initial, baseline = run.initial, run.config.baseline
    if initial is not None and initial.path not in planned and not initial.is_finished:
        raise ConfigurationError(
            f"{run.config.row}: init-from: {run.config.initial}: there is no finished run in "
            f"{initial}: launch both, by --rows {run.config.initial},{run.config.row}"
        )
    if baseline is None or run.of(baseline).path in planned:
        return
    for test_set in run.settings.data.test_sets:
        if not run.of(baseline).generated(test_set).is_file():
            raise ConfigurationError(
                f"--baseline {baseline}: there is no {run.of(baseline).generated(test_set)}: run "
                f"that row first, or launch both by --rows {baseline},{run.config.row}"
            )


def _names(options: Options) -> List[Optional[str]]:
    """Return the rows to run, the baseline first; ``None`` for that of the data set."""
    if options.rows is None:
        if options.config is None and options.dataset is None:
            alone = f"--arch {options.arch}: " if options.arch else ""
            raise ConfigurationError(
                f"{alone}give --config ROW, --dataset DATASET, or --prepared DIR with --arch ARCH"
            )
        return [options.config]
    exclusive = {"config": options.config, "arch": options.arch, "name": options.name}
    for flag, value in exclusive.items():
        if value is not None:
            raise ConfigurationError(f"--rows and --{flag} exclude each other: give one of them")
    if options.dataset is None:
        raise ConfigurationError(f"--rows {','.join(options.rows)}: give --dataset DATASET, too")
    known = configurations.rows_of(options.dataset)
    for row in options.rows:
        if row not in [ALL, *known]:
            raise ConfigurationError(
                f"--rows: {options.dataset} has no row {row!r}: choose from {', '.join(known)} or "
                f"all"
            )
    chosen = known if ALL in options.rows else options.rows
    return sorted(chosen, key=lambda row: row != options.baseline)


def _finish(options: Options, name: str, merged: Dict[str, Any]) -> Settings:
    """Apply the flags that override settings."""
    for key, code in zip(("data.source-lang", "data.target-lang"), options.pair or ()):
        settings.override(merged, key, code, "--pair")
    for assignment in options.assignments:
        settings.assign(merged, assignment)
    if options.max_update is not None:
        settings.override(merged, "train.max-update", options.max_update, "--max-update")
    check_file_name(name, "--name")
    return settings.complete(merged, name)


def _swept(
    options: Options, name: str, chosen: Settings
) -> List[Tuple[str, Settings, Optional[SweepPoint]]]:
    """Return a row for each value of a sweep; with several rows, the baseline only once."""
    sweep = options.sweep
    if sweep is None or (options.rows is not None and name == options.baseline):
        return [(name, chosen, None)]
    if chosen.classifies:
        raise ConfigurationError(
            f"--sweep {sweep.flag}: {name} is a sentence classifier, and a sweep shows BLEU: give "
            f"a row of translation"
        )
    rows: List[Tuple[str, Settings, Optional[SweepPoint]]] = []
    for value in sweep.values:
        merged = records.plain(chosen)
        settings.override(merged, f"train.{sweep.flag}", value, "--sweep")
        point = SweepPoint(row=name, flag=sweep.flag, value=value)
        check_file_name(point.name, "--sweep")
        rows.append((point.name, settings.complete(merged, point.name), point))
    return rows


def _tasks(chosen: Settings, wanted: Optional[Sequence[str]]) -> List[Optional[str]]:
    """Return the probing tasks of a row; ``[None]`` if it has none."""
    if wanted or chosen.train.get("task") != "probing":
        return [*wanted] if wanted else [None]
    own = chosen.data.tasks
    return [name.strip() for name in own.split(",")] if own else list(TASKS)


def _run(
    options: Options,
    name: str,
    chosen: Settings,
    point: Optional[SweepPoint],
    device: Device,
    seed: int,
    task: Optional[str],
    argv: Sequence[str],
) -> Run:
    output = options.output or Path("runs") / str(chosen.dataset)
    data = options.prepared or output / "data"
    if chosen.classifies and options.data and classification.reads_sources(chosen.data.recipe):
        data = options.data
    config = RunConfig(
        row=name,
        seed=seed,
        settings=records.plain(chosen),
        task=task,
        data=str(data.absolute()),
        sources=None if options.data is None else str(options.data.absolute()),
        mirrors=tuple(options.mirrors),
        device=device,
        # With several rows, --baseline applies to all but the baseline itself.
        baseline=None
        if name == options.baseline and (options.rows or own_data.applies(options))
        else options.baseline,
        sweep=point,
        initial=None if chosen.init_from is None else Path(chosen.init_from).stem,
        command=("capsnmt-run", *argv),
    )
    folder = output.joinpath(name, *([task] if task else []), f"seed-{seed}")
    return Run(config, chosen, RunFolder(folder))


def _in_order(runs: Sequence[Run]) -> List[Run]:
    """Return runs, each after those of the launch that it depends on."""
    named = {run.folder.path: run for run in runs}
    ordered: Dict[Path, Run] = {}

    def add(run: Run, after: Tuple[str, ...] = ()) -> None:
        if run.config.row in after:
            raise ConfigurationError(
                f"init-from: {' starts from '.join([*after, run.config.row])}: name a row that "
                f"does not start from this one"
            )
        for row in (run.config.initial, run.config.baseline):
            if row is not None and run.of(row).path in named and row != run.config.row:
                add(named[run.of(row).path], (*after, run.config.row))
        ordered.setdefault(run.folder.path, run)

    for run in runs:
        add(run)
    return list(ordered.values())

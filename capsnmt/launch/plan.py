"""From the flags of a launch to its runs, in the order in which they depend on each other."""

import json
import re
import shlex
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from capsnmt import configurations, records
from capsnmt.cli import ConfigurationError, check_output_file, require, say, shown
from capsnmt.configurations import Settings
from capsnmt.files import check_file_name
from capsnmt.launch import classification, flags, own_data, training_step
from capsnmt.launch.kind import kind_of
from capsnmt.launch.run import Run
from capsnmt.process import package_path
from capsnmt.runs.records import Device, RunConfig, RunFolder, SweepPoint
from capsnmt.runs.trained_rows import OF_NO_SYSTEM, row_differences
from capsnmt.sentences.senteval import TASKS

ALL = "all"
Row = Tuple[str, Settings, Optional[SweepPoint]]  # with its name


def runs_of(options: Namespace, device: Device) -> List[Run]:
    """Return the runs of a launch, seed by seed, so that an interrupted launch has complete seeds.

    Within a seed a run follows those that it starts from and is tested against.
    """
    if options.baseline is not None:
        _check_name(options.baseline, "--baseline")
    rows = [row for name, chosen in configure(options) for row in _swept(options, name, chosen)]
    runs = [
        _run(options, row, device, seed, task)
        for seed in options.seeds
        for row in rows
        for task in _tasks(options, row)
    ]
    return _in_order(runs)


def configure(options: Namespace) -> List[Tuple[str, Settings]]:
    """Return name and settings of the rows that a launch names, with its flags applied."""
    _check_given_once(options)
    rows = []
    for name, merged in own_data.rows(options) if own_data.applies(options) else _rows(options):
        if options.max_update is not None:
            configurations.override(merged, "train.max-update", options.max_update, "--max-update")
        for assignment in options.assignments:
            configurations.assign(merged, assignment)
        _check_name(name, "--name")
        rows.append((name, configurations.resolve(merged, name)))
    return rows


def check(runs: Sequence[Run]) -> None:
    """Raise unless each command of the runs will understand its arguments.

    The first run of each row and task is checked: other seeds have the same flags.
    """
    package_path()
    translating = (run for run in runs if not run.settings.classifies)
    for data in {run.data.folder: run.data for run in translating}.values():
        if edited := data.edited():
            more = f" and {len(edited) - 1} more" if len(edited) > 1 else ""
            say(
                f"warning: {data.folder / edited[0]}{more} is not what {data.manifest.name} says: "
                f"binarised text and references may be of other sentences; restore it, or prepare "
                f"the data again"
            )
    firsts: Dict[Path, Run] = {}
    for run in runs:
        firsts.setdefault(run.folder.row, run)
    for run in firsts.values():
        try:
            kind_of(run).check_settings(run)
            flags.check_owned(run.settings)
            flags.check_training(run.settings, training_step.train(run).arguments)
        except ConfigurationError as error:
            sweep = run.config.sweep
            at = "" if sweep is None else f"--sweep {sweep.flag}: "
            raise ConfigurationError(f"{at}{run.config.row}: {error}") from None


def check_before(run: Run, planned: Sequence[Path]) -> None:
    """Raise unless the data exist or can be made, and the runs exist that a run needs.

    Those in the folders ``planned`` are launched with it, or wait in the queue.
    """
    check_output_file(run.folder.config, "--output")
    if kind_of(run).prepare(run) is None:
        kind_of(run).check_data(run)
    if not run.settings.classifies:
        gone = run.sources is not None and not run.sources.is_dir()
        if gone and not run.data.is_complete():  # whose command would speak of its own flag
            raise ConfigurationError(f"--data {run.sources}: no such folder; check the path")
        # these steps come first and last: a library may not be missing after hours
        require(*([] if run.data.manifest.is_file() else ["data"]), "evaluation")
        from capsnmt.evaluation.metrics import build_metrics

        build_metrics(run.settings.languages[1], [[""]])
    config = run.config
    for flag, row in (("init-from", config.initial), ("--baseline", config.baseline)):
        if row is None or run.of(row).path in planned:
            continue
        other, tested = run.of(row), run.settings.data.test_sets if row == config.baseline else ()
        scored = records.load(other.scores) if other.scores.is_file() else {}  # else it is older
        translated = all(name in scored and other.generated(name).is_file() for name in tested)
        if not (other.is_finished and translated):
            raise ConfigurationError(
                f"{config.row}: {flag} {row} has no finished run in {other} with the same "
                f"test sets; launch {row} first, with that seed and in the same --output"
            )
    _warn_of_others(run, planned)


def _warn_of_others(run: Run, planned: Sequence[Path]) -> None:
    """Say in what a run differs from other seeds, or a baseline, that were launched before."""
    if run.folder.training.is_file():  # it goes on as it began
        return
    every: Tuple[str, ...] = ("",)
    others = [(RunFolder(path), every) for path in sorted(run.folder.row.glob("seed-*"))]
    if run.config.baseline is not None:
        others.append((run.of(run.config.baseline), OF_NO_SYSTEM))
    for other, keys in others:
        if other.path in (run.folder.path, *planned) or not other.training.is_file():
            continue
        with suppress(ConfigurationError):  # of another version
            found = row_differences(other.read_config(), run.config)
            for key, was, now in [each for each in found if each[0].startswith(keys)][:1]:
                say(
                    f"warning: {run.folder} has {key} {now}, and {other} {was}: for one experiment "
                    f"give --set {shlex.quote(f'{key}={json.dumps(was)}')}"
                )


def _check_name(name: str, where: str) -> None:
    check_file_name(name, where)
    if "=" in name:
        raise ConfigurationError(
            f"{where}: {shown(name)} cannot name a row, which capsnmt-evaluate reads as "
            f"NAME=FILE; give one without ="
        )


def _check_given_once(options: Namespace) -> None:
    """Raise if two flags set a key: one of them would have no effect.

    For data of one's own ``--max-update`` chooses more than the end of the training.
    """
    swept, _ = options.sweep or (None, [])
    ends = None if own_data.applies(options) else options.max_update
    given = {each.partition("=")[0]: "--set" for each in options.assignments}
    for flag, value, key in (
        ("--arch", options.arch, "arch"),
        ("--max-update", ends, "train.max-update"),
        ("--tasks", options.tasks, "data.tasks"),
        (f"--sweep {swept}", swept, f"train.{swept}"),
    ):
        if value is not None and given.setdefault(key, flag) != flag:
            raise ConfigurationError(f"{flag} sets {key}, as {given[key]} does; drop one")


def _rows(options: Namespace) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Yield name and settings of the configurations that a launch names, the baseline first."""
    if options.rows is None:
        if options.config is None and options.dataset is None:
            raise ConfigurationError(
                "give --config ROW, --dataset DATASET, or --prepared DIR with --arch ARCH"
            )
        default = "base" if options.arch else "baseline"
        names = [default if options.config is None else options.config]
    else:
        if options.arch is not None or options.name is not None:
            raise ConfigurationError("--rows has several rows; drop --arch and --name")
        if options.dataset is None:
            raise ConfigurationError(f"--rows is {','.join(options.rows)}; give --dataset DATASET")
        every = ALL in options.rows
        names = [*(configurations.rows_of(options.dataset) if every else options.rows)]
        names.sort(key=lambda row: row != options.baseline)
    for row in names:
        flag = "--rows" if options.rows else "--config"
        path = configurations.find(row, flag, dataset=options.dataset)
        merged = configurations.load(path)
        if options.dataset and merged.get("dataset", options.dataset) != options.dataset:
            raise ConfigurationError(
                f"{flag} {row} is of {merged['dataset']}; give --dataset {merged['dataset']}"
            )
        if options.arch is not None:
            configurations.override(merged, "arch", options.arch, "--arch")
        of_arch = options.arch if options.config is None else None
        yield options.name if options.name is not None else of_arch or path.stem, merged


def _is_baseline(options: Namespace, name: str) -> bool:
    """Return whether a row is among others that are compared with it."""
    several = options.rows is not None or own_data.applies(options)
    return several and name == options.baseline


def _swept(options: Namespace, name: str, chosen: Settings) -> Iterator[Row]:
    """Yield a row for each value of a sweep, and the baseline once."""
    if options.sweep is None or _is_baseline(options, name):
        yield name, chosen, None
        return
    flag, values = options.sweep
    if chosen.classifies:
        raise ConfigurationError(
            f"--sweep shows BLEU, and {name} is a sentence classifier; give a row that translates"
        )
    for value in map(configurations.value_of, values):
        named = {"row": name, "flag": flag, "value": value}
        point = records.build(named, SweepPoint, "--sweep")
        merged = records.plain(chosen)
        configurations.override(merged, f"train.{flag}", value, "--sweep")
        _check_name(point.name, "--sweep")
        yield point.name, configurations.resolve(merged, point.name), point


def _tasks(options: Namespace, row: Row) -> Sequence[Optional[str]]:
    """Return the probing tasks of a row; ``[None]`` if it has none."""
    name, chosen, _ = row
    if chosen.train.get("task") == "probing":
        own = chosen.data.tasks
        return options.tasks or ([task.strip() for task in own.split(",")] if own else [*TASKS])
    if options.tasks:
        raise ConfigurationError(
            f"--tasks is {','.join(options.tasks)}, and {name} is not a probing experiment; drop it"
        )
    return [None]


def _run(options: Namespace, row: Row, device: Device, seed: int, task: Optional[str]) -> Run:
    name, chosen, point = row
    _check_sources(options, name, chosen)
    initial = chosen.init_from
    output = options.output or Path("runs") / str(chosen.dataset)
    output = output if output.name else output.absolute()  # "." is in no path that lies below it
    data = options.prepared or output / "data"
    if chosen.classifies and options.data and chosen.data.recipe != classification.FROM_TEXT:
        data = options.data
    config = RunConfig(
        row=name,
        seed=seed,
        settings=chosen,
        task=task,
        data=str(data.absolute()),
        sources=None if options.data is None else str(options.data.absolute()),
        mirrors=tuple(options.mirrors),
        device=device,
        baseline=None if _is_baseline(options, name) else options.baseline,
        sweep=point,
        initial=None if initial is None else re.sub(r"\.ya?ml$", "", Path(initial).name),
        command=options.command,
    )
    folder = output.joinpath(*filter(None, (name, task, f"seed-{seed}")))
    return Run(config, RunFolder(folder))


def _check_sources(options: Namespace, name: str, chosen: Settings) -> None:
    """Raise if a flag that says where the data come from has no effect."""
    recipe, classifies = chosen.data.recipe, chosen.classifies
    downloads = recipe == classification.DOWNLOADED if classifies else recipe is not None
    if options.mirrors and not downloads:
        raise ConfigurationError(f"--mirror: {name} downloads nothing; drop it")
    if options.data and classifies and options.prepared and recipe != classification.FROM_TEXT:
        raise ConfigurationError(f"--data {options.data} has the files of {name}; drop --prepared")
    if options.data and not classifies and recipe is None:
        raise ConfigurationError(
            f"--data {options.data}: {name} has no data.recipe that reads it; drop it"
        )


def _in_order(runs: Sequence[Run]) -> List[Run]:
    """Return runs, each after those of the launch that it depends on."""
    named: Dict[Path, Run] = {}
    for run in runs:
        if named.setdefault(run.folder.path, run).config != run.config:
            raise ConfigurationError(
                f"{run.config.row} is the name of two different rows, which would share "
                f"{run.folder}; rename a file, or give another --name"
            )
    ordered: Dict[Path, Run] = {}

    def add(run: Run, later: Tuple[Path, ...] = ()) -> None:
        path = run.folder.path
        if path in later:
            row, compared = run.config.row, run.config.row == run.config.baseline
            raise ConfigurationError(
                f"--baseline {row} is the row itself; name another"
                if compared
                else f"{row}: init-from leads back to the row; name another"
            )
        for folder in run.earlier():
            if folder.path in named:
                add(named[folder.path], (*later, path))
        first = None if run.initial is None else named.get(run.initial.path)
        ordered.setdefault(path, replace(run, start=None if first is None else first.config))

    for run in runs:
        add(run)
    return list(ordered.values())

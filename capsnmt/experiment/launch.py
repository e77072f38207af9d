"""Build the runs that a launch names, check them, then print, submit or execute them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from capsnmt.arguments import check_mirrors
from capsnmt.errors import ConfigurationError, ExecutionError
from capsnmt.experiment import plan, process, slurm
from capsnmt.experiment.classification import ClassificationRun
from capsnmt.experiment.config import (
    Experiment,
    available,
    find,
    load,
    override,
    require_complete,
)
from capsnmt.experiment.devices import Device, choose_device
from capsnmt.experiment.execution import execute, prepare
from capsnmt.experiment.options import LaunchOptions
from capsnmt.experiment.precision import check_precision
from capsnmt.experiment.progress import say
from capsnmt.experiment.run import Run, RunData, environment
from capsnmt.experiment.sweep import check_settings, report_command, swept
from capsnmt.experiment.translation import TranslationRun
from capsnmt.files import check_output_folder, locked
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import SENTENCE_TASKS
from capsnmt.runs.summary import lines, summarise
from capsnmt.sentences.probing.tasks import TASKS
from capsnmt.settings import read_yaml

ALL = "all"


def launch(options: LaunchOptions, argv: Sequence[str]) -> None:
    """Launch runs: print their plan, submit them to SLURM, or execute them.

    Args:
        options: what to launch.
        argv: the command line; SLURM jobs get most of it.

    Raises:
        ConfigurationError, ExecutionError, Stopped: as :func:`.execution.execute`.
    """
    partition = options.slurm
    submits, here = partition is not None, partition is None and not options.dry_run
    if here:
        slurm.check_job(options.nodes, options.requeue, os.environ)
    gpus = 1 if submits and not options.cpu and options.gpus is None else options.gpus
    device = choose_device(options.cpu, gpus, options.threads, options.nodes, check=here)
    runs = make_runs(options, device)
    check_places(options, runs)
    report = report_command(runs, options.sweep)
    for run in _one_of_each_row(runs):
        check_settings(run)
        if here:
            check_precision(run.experiment, device)
    if options.dry_run:
        for run in runs:
            submission = partition is not None and slurm.submission(run, argv, partition)
            print(submission or plan.script(run), end="")
        if report:
            print(plan.last_step("draw the sweep", report, waits=submits), end="")
        return
    for number, run in enumerate(runs):
        earlier = [each.folder for each in runs[:number]]
        waits = submits and run.baseline is not None and slurm.alive(run.of(run.baseline))
        run.check_folders(earlier, bool(waits))
    if partition is not None:
        submit(runs, argv, partition)
        if report:
            say(f"when these jobs are finished: {shlex.join(report)}")
        return
    for run in runs:
        execute(run)
    for folder in {run.folder.row: run.folder for run in runs}.values():
        report_means(folder)
    if report:
        draw(report, device)


def check_places(options: LaunchOptions, runs: Sequence[Run]) -> None:
    """Raise unless the names and folders that were given can work, so that a plan would run.

    Raises:
        ConfigurationError: a name cannot be that of a folder, ``--data`` or ``--baseline`` does not
            exist, ``--mirror`` has no effect, or a folder to write is a file.
    """
    check_mirrors(options.mirrors, options.data is None and not options.offline, "--data")
    for flag, path in (("--output", options.output), ("--prepared", options.prepared)):
        if path is not None:
            check_output_folder(path, flag)
    launched = {run.experiment.row for run in runs}
    for run in runs:
        run.check_names()
        run.check_local()
        baseline = run.baseline
        if baseline is None or baseline in launched or run.of(baseline).row.is_dir():
            continue
        dataset = run.experiment["dataset"]
        if f"{dataset}/{baseline}" not in available():
            known = ", ".join(rows_of(dataset))
            raise ConfigurationError(
                f"--baseline {baseline}: neither a row of {dataset} ({known}) nor a folder "
                f"{run.of(baseline).row}: run that row first"
            )


def submit(runs: Sequence[Run], argv: Sequence[str], partition: str) -> None:
    """Submit a job for each run that has none in the queue."""
    for run in runs:
        job = slurm.alive(run.folder)
        if job is None:
            prepare(run)
            job = slurm.submit(run, argv, partition)
        say(f"== {run.title}, on {run.device}: {slurm.status(run, job)}")


def report_means(folder: RunFolder) -> None:
    """Write and show the means over the seeds of a row."""
    lock = folder.row / ".lock"
    with locked(lock, f"{lock}: another launcher still writes {folder.summary.name}"):
        summary = summarise(folder)
    task = f", {summary.task}" if summary.task else ""
    say(f"== {summary.row}{task}: {folder.summary}")
    for line in lines(summary):
        say(f"  {line}")


def draw(command: Sequence[str], device: Device) -> None:
    """Run the command that draws a sweep.

    Raises:
        ExecutionError: it failed; the runs are complete.
    """
    say("-- draw the sweep")
    status = process.run(command, environment(device), lambda line: print(line, end="", flush=True))
    if status:
        raise ExecutionError(
            f"the sweep is complete, but its figure failed with exit status {status}: fix the "
            f"cause and run the same command again"
        )


def make_runs(options: LaunchOptions, device: Device) -> List[Run]:
    """Return the runs of a launch, seed by seed, so that an interrupted launch has complete seeds.

    Raises:
        ConfigurationError: a configuration does not exist, is wrong or incomplete.
    """
    experiments = [each for row in rows(options) for each in configure_sweep(options, row)]
    return [
        make_run(options, experiment, device, seed, task)
        for seed in options.seeds
        for experiment in experiments
        for task in tasks_of(experiment, options.tasks)
    ]


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
    names = [name for name in available() if name.startswith(f"{dataset}/")]
    if not names:
        datasets = sorted({name.split("/")[0] for name in available()})
        raise ConfigurationError(f"--dataset {dataset}: choose from {', '.join(datasets)}")
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


def _one_of_each_row(runs: Sequence[Run]) -> List[Run]:
    """Return the first run of each row and task; the other seeds have the same flags."""
    firsts: Dict[Path, Run] = {}
    for run in runs:
        firsts.setdefault(run.folder.row, run)
    return list(firsts.values())

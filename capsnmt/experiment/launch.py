"""What the flags of the launcher do: which runs there are, checked, planned, submitted or run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.experiment import plan, slurm
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
from capsnmt.experiment.progress import say
from capsnmt.experiment.run import Run, RunData
from capsnmt.experiment.runner import execute, prepare
from capsnmt.experiment.translation import TranslationRun
from capsnmt.files import locked
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import SENTENCE_TASKS
from capsnmt.runs.summary import lines, summarise
from capsnmt.sentences.probing.tasks import TASKS
from capsnmt.settings import read_yaml

ALL = "all"


def launch(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Do what the flags say.

    Args:
        args: the parsed flags.
        argv: the flags as they were given; the jobs of SLURM get most of them.

    Raises:
        ConfigurationError, ExecutionError, Stopped: as :func:`capsnmt.experiment.runner.execute`.
    """
    submits, here = args.slurm is not None, args.slurm is None and not args.dry_run
    if here:
        slurm.check_job(args.nodes, args.requeue, os.environ)
    gpus = 1 if submits and not args.cpu and args.gpus is None else args.gpus
    device = choose_device(args.cpu, gpus, args.threads, args.nodes, check=here)
    runs = make_runs(args, device)
    for run in _one_of_each_row(runs):
        run.check_settings()
    if args.dry_run:
        for run in runs:
            print(slurm.submission(run, argv, args.slurm) if submits else plan.script(run), end="")
        return
    for number, run in enumerate(runs):
        earlier = [each.folder for each in runs[:number]]
        waits = submits and run.baseline is not None and slurm.alive(run.of(run.baseline))
        run.check_folders(earlier, bool(waits))
    if submits:
        submit(runs, argv, args.slurm)
        return
    for run in runs:
        execute(run)
    for folder in {run.folder.row: run.folder for run in runs}.values():
        report_means(folder)


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


def make_runs(args: argparse.Namespace, device: Device) -> List[Run]:
    """Return the runs that the flags name, seed by seed, so that a stopped set has complete seeds.

    Raises:
        ConfigurationError: a configuration does not exist, is wrong or incomplete.
    """
    experiments = [configure(args, row) for row in rows(args)]
    return [
        make_run(args, experiment, device, seed, task)
        for seed in args.seeds or [args.seed or 1]
        for experiment in experiments
        for task in tasks_of(experiment, args.tasks)
    ]


def rows(args: argparse.Namespace) -> List[Optional[str]]:
    """The rows to run, the baseline first; ``None`` stands for what ``--config`` says.

    Raises:
        ConfigurationError: the flags exclude each other, or there is no such row.
    """
    if args.rows is None:
        return [args.config]
    for flag in ("config", "arch", "name"):
        if getattr(args, flag) is not None:
            raise ConfigurationError(f"--rows and --{flag} exclude each other: give one of them")
    if args.dataset is None:
        raise ConfigurationError(f"--rows {','.join(args.rows)}: give --dataset DATASET, too")
    known = rows_of(args.dataset)
    for row in args.rows:
        if row not in [ALL, *known]:
            raise ConfigurationError(
                f"--rows: {args.dataset} has no row {row!r}: choose from {', '.join(known)} or all"
            )
    chosen = known if ALL in args.rows else args.rows
    return sorted(chosen, key=lambda row: row != args.baseline)


def rows_of(dataset: str) -> List[str]:
    """Return the rows of a data set: the configurations that are more than what others extend.

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


def configure(args: argparse.Namespace, row: Optional[str]) -> Experiment:
    """Return the configuration of a row with what the flags override.

    Raises:
        ConfigurationError: it does not exist, is wrong or incomplete.
    """
    if row is None and args.dataset is None:
        if args.arch is None:
            raise ConfigurationError("give --config ROW or --arch ARCH (with --dataset DATASET)")
        raise ConfigurationError(f"--arch {args.arch}: give --dataset DATASET or --config ROW, too")
    path = find(row or ("base" if args.arch else "baseline"), args.dataset)
    named = row or not args.arch
    experiment = load(path, args.name or (path.stem if named else args.arch))
    if args.dataset and experiment["dataset"] != args.dataset:
        raise ConfigurationError(
            f"--config {row}: is for {experiment['dataset']}, not {args.dataset}"
        )
    if args.arch is not None:
        experiment.put("arch", args.arch, "--arch")
    for key, language in zip(("data.source-lang", "data.target-lang"), args.pair or ()):
        experiment.put(key, language, "--pair")
    override(experiment, args.set)
    if args.max_update is not None:
        experiment.put("train.max-update", args.max_update, "--max-update")
    require_complete(experiment)
    return experiment


def tasks_of(experiment: Experiment, wanted: Optional[Sequence[str]]) -> List[Optional[str]]:
    """The probing tasks of an experiment: those wanted, else those of its data; else ``None``."""
    if experiment["train.task"] != "probing":
        return list(wanted) if wanted else [None]
    if wanted:
        return list(wanted)
    own = experiment["data.tasks"]
    return [name.strip() for name in own.split(",")] if own else list(TASKS)


def make_run(
    args: argparse.Namespace,
    experiment: Experiment,
    device: Device,
    seed: int,
    task: Optional[str] = None,
) -> Run:
    """Return one seed of an experiment, on one task."""
    output = args.output or Path("runs") / experiment["dataset"]
    folder = args.prepared or output / "data"
    data = RunData(folder, args.data, args.offline, tuple(args.mirror))
    # With several rows, --baseline means all rows but itself.
    baseline = None if args.rows and args.baseline == experiment.row else args.baseline
    kind = ClassificationRun if experiment["train.task"] in SENTENCE_TASKS else TranslationRun
    return kind(experiment, data, output, device, seed, baseline, task)


def _one_of_each_row(runs: Sequence[Run]) -> List[Run]:
    """The first run of each row and task: the flags of the other seeds are the same."""
    firsts: Dict[Path, Run] = {}
    for run in runs:
        firsts.setdefault(run.folder.row, run)
    return list(firsts.values())

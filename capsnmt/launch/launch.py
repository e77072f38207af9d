"""Build the runs that a launch names, check them, then print, submit or execute them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Dict, List, Sequence

from capsnmt import process
from capsnmt.cli import ConfigurationError, ExecutionError, require
from capsnmt.files import check_output_folder, locked
from capsnmt.launch import plan, slurm
from capsnmt.launch.assembly import configure_sweep, make_run, rows, rows_of, tasks_of
from capsnmt.launch.config import available
from capsnmt.launch.devices import Device, choose_device
from capsnmt.launch.execution import execute, prepare
from capsnmt.launch.initial import check_initial_run, in_order, with_initial_runs
from capsnmt.launch.options import LaunchOptions
from capsnmt.launch.precision import check_precision
from capsnmt.launch.progress import say
from capsnmt.launch.run import Run, environment
from capsnmt.launch.sweep import check_settings, report_command
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.summary import lines, summarise


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
    elif not options.dry_run:
        slurm.check_commands()
    gpus = 1 if submits and not options.cpu and options.gpus is None else options.gpus
    device = choose_device(options.cpu, gpus, options.threads, options.nodes, check=here)
    named = make_runs(options, device)
    report = report_command(named, options.sweep)
    runs = in_order(named)
    check_places(options, runs)
    for run in _one_of_each_row(runs):
        check_settings(run)
        check_initial_run(run)
        if here:
            check_precision(run.experiment, device)
    if options.dry_run:
        for run in runs:
            submission = partition is not None and slurm.submission(run, argv, partition)
            print(submission or plan.script(run), end="")
        if report:
            print(plan.last_step("draw the sweep", report, waits=submits), end="")
        return
    if report:
        require("report")
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
        execute(run, argv)
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
    for flag, path in (("--output", options.output), ("--prepared", options.prepared)):
        if path is not None:
            check_output_folder(path, flag)
    launched = {run.experiment.row for run in runs}
    for run in runs:
        run.check_names()
        run.check_local()
        baseline = run.baseline
        if baseline == run.experiment.row:
            raise ConfigurationError(f"--baseline {baseline}: is the row itself: name another")
        if baseline is None or baseline in launched or run.of(baseline).row.is_dir():
            continue
        dataset = run.experiment["dataset"]
        named = [name for name in available() if name.startswith(f"{dataset}/")]
        if f"{dataset}/{baseline}" not in named:
            known = f" ({', '.join(rows_of(dataset))})" if named else ""
            raise ConfigurationError(
                f"--baseline {baseline}: neither a row of {dataset}{known} nor a folder "
                f"{run.of(baseline).row}: run that row first"
            )


def submit(runs: Sequence[Run], argv: Sequence[str], partition: str) -> None:
    """Submit a job for each run that has none in the queue."""
    for run in runs:
        job, state = slurm.alive(run.folder) or (None, "submitted")
        if job is None:
            prepare(run)
            job = slurm.submit(run, argv, partition)
        log = run.folder.job_log(job)
        say(f"== {run.title}, on {run.device}: job {job} ({state}), log {log}")


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

    Each run knows the run that it starts from, if its configuration has ``init-from``.

    Raises:
        ConfigurationError: a configuration does not exist, is wrong or incomplete.
    """
    experiments = [each for row in rows(options) for each in configure_sweep(options, row)]
    runs = [
        make_run(options, experiment, device, seed, task)
        for seed in options.seeds
        for experiment in experiments
        for task in tasks_of(experiment, options.tasks)
    ]
    return with_initial_runs(options, runs)


def _one_of_each_row(runs: Sequence[Run]) -> List[Run]:
    """Return the first run of each row and task; the other seeds have the same flags."""
    firsts: Dict[Path, Run] = {}
    for run in runs:
        firsts.setdefault(run.folder.row, run)
    return list(firsts.values())

"""A launch: print its runs as scripts, submit them, or execute them here, also side by side."""

import itertools
import os
import shlex
import subprocess
import time
from argparse import Namespace
from pathlib import Path
from typing import Collection, Dict, List, Mapping, Sequence, Set

import torch
import yaml

from capsnmt import process, records
from capsnmt.cli import ConfigurationError, ExecutionError, Stopped, require, say
from capsnmt.files import atomic_writer, locked
from capsnmt.launch import own_data, plan, slurm
from capsnmt.launch.execute import execute, script, set_up
from capsnmt.launch.progress import print_line
from capsnmt.launch.run import Run, environment, python
from capsnmt.launch.training_step import choose_device
from capsnmt.runs import summary
from capsnmt.runs.records import Device

VISIBLE = "CUDA_VISIBLE_DEVICES"


def dispatch(options: Namespace) -> None:
    """Print, submit or execute what is asked for."""
    if options.resume is not None:
        run = Run.read(options.resume)
        execute(run)
        summarise([run])
    elif options.write_config is not None:
        write_config(options, options.write_config)
    else:
        runs = plan.runs_of(options, choose_device(options))
        plan.check(runs)
        report = report_command(options, runs)
        if options.dry_run:
            show(options, runs, report)
            return
        if own_data.applies(options):
            print_line(own_data.describe(runs[-1]))
        earlier = [folder for run in runs for folder in run.earlier()]
        waiting = [] if options.slurm is None else slurm.waiting(earlier)
        for run in runs:
            plan.check_before(run, [run.folder.path for run in runs] + waiting)
        if options.slurm is not None:
            for run in runs:
                print_line(slurm.submit(run, options.slurm))
            return
        if report:
            require("report")
        finished: List[Run] = []
        try:
            if options.jobs > 1:
                execute_side_by_side(runs, options.jobs, finished)
            else:
                for run in runs:
                    execute(run)
                    finished.append(run)
        finally:
            summarise(finished)
        if report:
            draw(report_command(options, runs, finished=True), runs[0])


def show(options: Namespace, runs: Sequence[Run], report: Sequence[str]) -> None:
    """Print the plan: a script, or those of the jobs."""
    jobs = options.slurm
    for run in runs:
        print(script(run) if jobs is None else slurm.job_script(run, jobs), end="")
        other = run.initial
        if other is not None and run.start is None and not other.exists:
            say(
                f"warning: {run.title}: init-from {run.config.initial} has no run in {other}: the "
                f"plan takes {run.initial_model}, by the settings of {run.config.row}"
            )
    if report:
        print(f"\n# report\n{'' if jobs is None else '# '}{shlex.join(report)}")


def write_config(options: Namespace, path: Path) -> None:
    """Write the settings of a launch as YAML, to edit."""
    *others, (name, settings) = plan.configure(options)
    if others and options.rows is not None:
        raise ConfigurationError(f"--write-config {path} takes one row; name it by --config")
    if path.exists() or path.suffix not in (".yaml", ".yml"):
        problem = "exists" if path.exists() else "does not end in .yaml"
        raise ConfigurationError(f"--write-config {path} {problem}; choose another name")
    with atomic_writer(path) as file:
        file.write(f"# {name}, as capsnmt-run --write-config wrote it\n")
        yaml.safe_dump(records.plain(settings), file, sort_keys=False, allow_unicode=True)
    words = ["capsnmt-run", "--config", str(path)]
    words += ["--name", name] if options.name else []  # else it is that of the file
    words += ["--prepared", str(options.prepared)] if options.prepared else []
    print(f"{path}: edit it, and run: {shlex.join(words)}")


def execute_side_by_side(runs: Sequence[Run], jobs: int, finished: List[Run]) -> None:
    """Execute runs in processes of their own, several at a time; the output of each in its folder.

    Those that end well are added to ``finished``. If one fails, the others are finished first.
    After a stop signal, all have ended.
    """
    named = {run.folder.path: run for run in runs}
    waiting = {**named}
    running: Dict[Path, subprocess.Popen[bytes]] = {}
    free, taken = _shares(runs[0].device, jobs), {}
    failed: Set[Path] = set()
    refused: List[Exception] = []
    try:
        while waiting or running:
            for path, run in list(waiting.items()):
                earlier = {folder.path for folder in run.earlier()}
                if earlier & failed:
                    del waiting[path]
                    failed.add(path)
                    first = named[min(earlier & failed)]
                    print_line(f"== {run.title}: not started, as {first.title} failed")
                elif free and not earlier & {*waiting, *running}:
                    del waiting[path]
                    try:
                        running[path] = _start(run, free[0])
                    except (ConfigurationError, ExecutionError, OSError) as error:
                        failed.add(path)
                        refused.append(error)
                        print_line(f"== {run.title}: not started: {error}")
                    else:
                        taken[path] = free.pop(0)
            for path in [path for path, child in running.items() if child.poll() is not None]:
                status = running.pop(path).returncode
                ended = f"failed with exit status {status}" if status else "done"
                if status:
                    failed.add(path)
                else:
                    finished.append(named[path])
                free.append(taken[path])
                print_line(f"== {named[path].title}: {ended}")
            time.sleep(0.1)
    finally:
        _end(running.values())
    if refused:
        raise refused[0]
    if failed:
        names = "; ".join(run.title for path, run in named.items() if path in failed)
        raise ExecutionError(f"{names}: failed: see launch.log in the run's folder")


def _end(children: Collection[subprocess.Popen[bytes]]) -> None:
    """Ask the runs to end, and wait for them. A second stop signal is passed on: they kill then."""
    for child in children:
        child.terminate()
    try:
        for child in children:
            child.wait()
    except Stopped:
        _end(children)
        raise


def _shares(device: Device, jobs: int) -> List[Dict[str, str]]:
    """Return the variables that show each of several jobs its GPUs.

    **D**: they are its own as far as those that this process sees suffice, and then shared in turn:
    a GPU may hold several small models.
    """
    if not device.gpus or device.nodes > 1:
        return [{}] * jobs
    seen = torch.cuda.device_count()
    given = os.environ.get(VISIBLE)
    gpus = itertools.cycle(map(str, range(seen)) if given is None else given.split(",")[:seen])
    return [{VISIBLE: ",".join(itertools.islice(gpus, device.gpus))} for _ in range(jobs)]


def _start(run: Run, share: Mapping[str, str]) -> subprocess.Popen[bytes]:
    set_up(run)
    log = run.folder.path / "launch.log"
    print_line(f"== {run.title}, on {run.device}: started, {log}")
    with open(log, "ab") as output:
        return subprocess.Popen(
            [*python("capsnmt.launch"), "--resume", str(run.folder)],
            env={**os.environ, **environment(run.device), **share},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is passed on above, once
        )


def summarise(runs: Sequence[Run]) -> None:
    """Write and show the means over the seeds of each row."""
    for run in {run.folder.row: run for run in runs}.values():
        folder, data = run.folder, run.settings.data
        texts = {x: run.data.references(x, run.settings.languages[1]) for x in data.test_sets or ()}
        waiting = f"waiting for another launcher that writes {folder.summary}"
        with locked(folder.row / ".lock", waiting, print_line):
            found = summary.summarise(folder, texts)
        task = f", {found.task}" if found.task else ""
        print_line(f"== {found.row}{task}: {folder.summary}")
        for line in summary.lines(found):
            print_line(f"  {line}")


def report_command(options: Namespace, runs: Sequence[Run], finished: bool = False) -> List[str]:
    """Return the command that reports a sweep, or rows on data of one's own; else nothing.

    Of rows that are ``finished``, seeds that their means leave out are left out of the report.
    """
    output = runs[0].output
    swept, values = options.sweep or ("", [])
    if len(values) > 1:
        output /= f"sweep-{swept}"
    elif not own_data.applies(options):
        return []
    baselines = [run.of(run.config.baseline) for run in runs if run.config.baseline]
    rows: List[Path] = []
    for folder in {each.row: each for each in [*baselines, *(run.folder for run in runs)]}.values():
        made = finished and folder.summary.is_file()
        seeds = records.read(folder.summary, summary.Summary).seeds if made else []
        rows += [folder.row / f"seed-{seed}" for seed in seeds] or [folder.row]
    return [*python("capsnmt.report"), *map(str, rows), "--output", str(output)]


def draw(command: Sequence[str], run: Run) -> None:
    """Run the command of the report."""
    print_line("-- report")
    shown = environment(run.device)
    if process.run(command, shown, lambda line: print(line, end="", flush=True)):
        raise ExecutionError(
            "the runs are complete, but their report failed: fix the cause and run the same "
            "command again"
        )

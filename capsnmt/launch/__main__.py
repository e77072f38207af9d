"""``capsnmt-run``: print, submit or execute the runs of a launch."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional, Sequence

from capsnmt.cli import ConfigurationError, ExecutionError, quiet, require, run_command
from capsnmt.launch.options import Options, parse
from capsnmt.process import Stopped, stoppable

if TYPE_CHECKING:
    from capsnmt.launch.run import Run


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher.

    Returns:
        As `capsnmt.cli.run_command`; 128 + n after signal n.
    """
    words = sys.argv[1:] if argv is None else argv
    stopped: List[Stopped] = []

    def command() -> None:
        options = parse(words)
        # Importing torch and fairseq takes seconds; --help and a bad flag do not need them.
        require("fairseq")
        try:
            with quiet(), stoppable():
                launch(options, words)
        except Stopped as error:
            stopped.append(error)

    status = run_command(command, "stopped: the same command resumes")
    if stopped:
        print(f"{stopped[0]}: the same command resumes", file=sys.stderr)
        return stopped[0].status
    return status


def launch(options: Options, argv: Sequence[str]) -> None:
    """Print, submit or execute what is asked for.

    Raises:
        ConfigurationError, ExecutionError, Stopped: as :func:`capsnmt.launch.execute.execute`.
    """
    from capsnmt.launch import own_data, plan, slurm
    from capsnmt.launch.devices import choose_device
    from capsnmt.launch.execute import execute, execute_side_by_side
    from capsnmt.launch.progress import say
    from capsnmt.launch.run import Run
    from capsnmt.launch.script import script

    if options.resume is not None:
        run = Run.read(options.resume)
        execute(run)
        summarise([run])
        return
    here = options.slurm is None and not options.dry_run
    gpus = 1 if options.slurm is not None and not options.cpu else None
    device = choose_device(options.cpu, options.gpus or gpus, options.threads, options.nodes, here)
    if options.write_config is not None:
        write_config(options, options.write_config)
        return
    runs = plan.resolve(options, device, argv)
    plan.check(runs)
    report = report_command(options, runs)
    if options.dry_run:
        for run in runs:
            text = script(run) if options.slurm is None else slurm.submission(run, options.slurm)
            print(text, end="")
        if report:
            print(f"\n# report{'' if options.slurm is None else ', when the jobs are finished'}")
            print(f"{'' if options.slurm is None else '#   '}{shlex.join(report)}")
        return
    if own_data.applies(options):
        say(own_data.describe(options))
    if report:
        require("report")
    folders = [run.folder.path for run in runs]
    if options.slurm is not None:
        slurm.check_commands()
        queued = {each.path: each for run in runs for each in run.earlier()}
        folders += [path for path, folder in queued.items() if slurm.alive(folder)]
    else:
        slurm.check_nodes(options.nodes, os.environ)
    for number, run in enumerate(runs):
        plan.check_before(run, folders if options.slurm is not None else folders[:number])
    if options.slurm is not None:
        for run in runs:
            job, state = slurm.alive(run.folder) or (slurm.submit(run, options.slurm), "submitted")
            log = run.folder.job_log(job)
            say(f"== {run.title}, on {run.device}: job {job} ({state}), log {log}")
        return
    if options.jobs > 1:
        execute_side_by_side(runs, options.jobs)
    else:
        for run in runs:
            execute(run)
    summarise(runs)
    if report:
        draw(report, runs[0])


def write_config(options: Options, path: Path) -> None:
    """Write the settings of a launch as YAML, to edit.

    Raises:
        ConfigurationError: it names several rows, or the file exists.
    """
    import yaml

    from capsnmt.files import atomic_writer
    from capsnmt.launch import plan
    from capsnmt.records import plain

    *others, (name, settings) = plan.configure(options)
    if others and options.rows is not None:
        raise ConfigurationError(f"--write-config {path}: give one row, by --config")
    if path.exists():
        raise ConfigurationError(f"--write-config {path}: is there: choose another name")
    with atomic_writer(path) as file:
        file.write(f"# {name}, as capsnmt-run --write-config wrote it\n")
        yaml.safe_dump(plain(settings), file, sort_keys=False, allow_unicode=True)
    where = f" --prepared {options.prepared}" if options.prepared else ""
    print(f"{path}: edit it, and run: capsnmt-run --config {path}{where}")


def summarise(runs: Sequence[Run]) -> None:
    """Write and show the means over the seeds of each row."""
    from capsnmt.files import locked
    from capsnmt.launch.progress import say
    from capsnmt.runs.summary import lines, summarise

    for folder in {run.folder.row: run.folder for run in runs}.values():
        waiting = f"waiting for another launcher that writes {folder.summary}"
        with locked(folder.row / ".lock", waiting, say):
            summary = summarise(folder)
        task = f", {summary.task}" if summary.task else ""
        say(f"== {summary.row}{task}: {folder.summary}")
        for line in lines(summary):
            say(f"  {line}")


def report_command(options: Options, runs: Sequence[Run]) -> List[str]:
    """Return the command that reports a sweep, or rows on data of one's own; else nothing."""
    from capsnmt.launch import own_data
    from capsnmt.launch.run import python

    output = runs[0].output
    if options.sweep is not None and len(options.sweep.values) > 1:
        place = output / f"sweep-{options.sweep.flag}"
    elif own_data.applies(options):
        place = output
    else:
        return []
    baselines = [run.of(run.config.baseline).row for run in runs if run.config.baseline]
    rows = dict.fromkeys(map(str, [*baselines, *(run.folder.row for run in runs)]))
    return [*python("capsnmt.report"), *rows, "--output", str(place)]


def draw(command: Sequence[str], run: Run) -> None:
    """Run the command of the report.

    Raises:
        ExecutionError: it failed; the runs are complete.
    """
    from capsnmt import process
    from capsnmt.launch.progress import say
    from capsnmt.launch.run import environment

    say("-- report")
    shown = environment(run.device)
    status = process.run(command, shown, lambda line: print(line, end="", flush=True))
    if status:
        raise ExecutionError(
            f"the runs are complete, but their report failed with exit status {status}: fix the "
            f"cause and run the same command again"
        )


if __name__ == "__main__":
    sys.exit(main())

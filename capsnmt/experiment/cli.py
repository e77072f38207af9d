"""The launcher: what its flags do."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.experiment import commands, flags, plan, slurm
from capsnmt.experiment.arguments import parser
from capsnmt.experiment.commands import Prepared, Run
from capsnmt.experiment.config import Experiment, find, load, override, require_complete
from capsnmt.experiment.devices import TRAINING, Device, choose_device
from capsnmt.experiment.process import Stopped, stoppable
from capsnmt.experiment.runner import StageFailed, execute, prepare, say
from capsnmt.files import locked
from capsnmt.runs.summary import lines, summarise

INTERRUPTED = 130


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher; the exit status: 0, 1 for a failed stage, 2 for bad input, 128 + signal."""
    argv = sys.argv[1:] if argv is None else argv
    requeues = False
    try:
        args = parser().parse_args(argv)
        requeues = args.requeue
        # What fairseq says while it is only asked for its flags is no news to the user.
        logging.disable(logging.INFO)
        with stoppable():
            launch(args, argv)
    except ConfigurationError as error:
        return _end(f"error: {error}", 2)
    except StageFailed as error:
        return _end(f"error: {error}", 1)
    except Stopped as error:
        stopped = error

        def tell(then: str) -> int:
            return _end(f"{stopped}: {then}", stopped.status)

        if not requeues:
            return tell("the same command resumes")
        slurm.requeue(os.environ, tell)
        return stopped.status
    except KeyboardInterrupt:
        return _end("stopped: the same command resumes", INTERRUPTED)
    return 0


def launch(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Do what the flags say.

    Raises:
        ConfigurationError, StageFailed, Stopped: as :func:`capsnmt.experiment.runner.execute`.
    """
    submits, here = args.slurm is not None, args.slurm is None and not args.dry_run
    if here:
        slurm.check_job(args.nodes, args.requeue, os.environ)
    gpus = 1 if submits and not args.cpu and args.gpus is None else args.gpus
    device = choose_device(args.cpu, gpus, args.threads, args.nodes, check=here)
    experiment = configure(args)
    runs = [make_run(args, experiment, device, seed) for seed in args.seeds or [args.seed or 1]]
    check_flags(runs[0])
    if args.dry_run:
        for run in runs:
            print(slurm.submission(run, argv, args.slurm) if submits else plan.script(run), end="")
        return
    check_folders(args, runs)
    for run in runs:
        if submits:
            job = slurm.alive(run.folder)
            if job is None:
                prepare(run)
                job = slurm.submit(run, argv, args.slurm)
            say(
                f"== {run.experiment.row}, seed {run.seed}, on {run.device}: {slurm.tell(run, job)}"
            )
        else:
            execute(run)
    if submits:
        return
    folder = runs[0].folder
    lock = folder.row / ".lock"
    with locked(lock, f"{lock}: another launcher still writes {folder.summary.name}"):
        summary = summarise(folder)
    say(f"== {summary.row}: {folder.summary}")
    for line in lines(summary):
        say(f"  {line}")


def configure(args: argparse.Namespace) -> Experiment:
    """The configuration that the flags name, with what they override.

    Raises:
        ConfigurationError: it does not exist, is wrong or incomplete.
    """
    if args.config is None and args.dataset is None:
        if args.arch is None:
            raise ConfigurationError("give --config ROW or --arch ARCH (with --dataset DATASET)")
        raise ConfigurationError(f"--arch {args.arch}: give --dataset DATASET or --config ROW, too")
    path = find(args.config or ("base" if args.arch else "baseline"), args.dataset)
    named = args.config or not args.arch
    experiment = load(path, args.name or (path.stem if named else args.arch))
    if args.dataset and experiment["dataset"] != args.dataset:
        raise ConfigurationError(
            f"--config {args.config}: is for {experiment['dataset']}, not {args.dataset}"
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


def make_run(args: argparse.Namespace, experiment: Experiment, device: Device, seed: int) -> Run:
    """One seed of the experiment."""
    output = args.output or Path("runs") / experiment["dataset"]
    prepared = args.prepared or output / "data"
    data = Prepared(prepared, args.data, args.offline, tuple(args.mirror))
    return Run(experiment, data, output, device, seed, args.baseline)


def check_flags(run: Run) -> None:
    """Raise unless fairseq will understand every flag.

    Raises:
        ConfigurationError: naming the flag, and the file it stands in.
    """
    flags.check_owned(run.experiment)
    flags.check_arch(run.experiment)
    flags.check_average(run.experiment)
    test_set = next(iter(run.test_sets))
    flags.check_train(run.experiment, _after(TRAINING, commands.train(run)))
    flags.check_generate(
        run.experiment, _after("fairseq_cli.generate", commands.generate(run, test_set))
    )


def check_folders(args: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Raise unless what must exist before the first stage does.

    Raises:
        ConfigurationError: naming the folder or the file.
    """
    data = runs[0].data
    if data.local is not None and not data.local.is_dir():
        raise ConfigurationError(f"--data {data.local}: there is no such folder")
    if not runs[0].experiment["data.recipe"] and not data.manifest.is_file():
        raise ConfigurationError(
            f"--prepared {data.folder}: holds no prepared data (manifest.json): this dataset has "
            f"no recipe, so prepare it first"
        )
    for run in runs if args.baseline else []:
        if args.baseline == run.experiment.row:
            raise ConfigurationError(f"--baseline {args.baseline}: is the row itself: name another")
        for test_set in run.test_sets:
            path = run.generated(test_set, args.baseline)
            # A job waits for the job of its baseline.
            waits = args.slurm is not None and slurm.alive(run.of(args.baseline))
            if not path.is_file() and not waits:
                raise ConfigurationError(
                    f"--baseline {args.baseline}: there is no {path}: run that row first, with "
                    f"--seed {run.seed} and --output {run.output}"
                )


def _after(module: str, command: commands.Command) -> List[str]:
    return list(command.argv[command.argv.index(module) + 1 :])


def _end(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status

"""The launcher's command line."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any, List, Optional, Sequence

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from capsnmt.experiment import commands, flags
from capsnmt.experiment.commands import Prepared, Run
from capsnmt.experiment.config import Experiment, find, load, override, require_complete
from capsnmt.experiment.devices import Device, choose_device
from capsnmt.experiment.process import Stopped
from capsnmt.experiment.runner import StageFailed, execute, say
from capsnmt.experiment.summary import lines, summarise

INTERRUPTED = 130


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the launcher; the exit status: 0, 1 for a failed stage, 2 for bad input, 128 + signal."""
    try:
        args = parse(argv)
        # What fairseq says while it is only asked for its flags is no news to the user.
        logging.disable(logging.INFO)
        launch(args)
    except ConfigurationError as error:
        return _end(f"error: {error}", 2)
    except StageFailed as error:
        return _end(f"error: {error}", 1)
    except Stopped as error:
        return _end(f"{error}: the same command resumes", error.status)
    except KeyboardInterrupt:
        return _end("stopped: the same command resumes", INTERRUPTED)
    return 0


def parse(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The flags.

    Raises:
        ConfigurationError: a flag is unknown, a value is wrong, or two exclude each other.
    """
    parser = OneLineParser(
        prog="run_experiment.sh",
        description="Prepare, train, average, generate and score one row of a table. Complete "
        "stages are skipped and training resumes: the same command again is the way on.",
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("--config", metavar="ROW", help="DATASET/ROW or a YAML file")
    what.add_argument("--dataset", help="whose configurations --config and --arch mean")
    what.add_argument("--arch", help="the architecture; alone: the dataset's base with it")
    what.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="e.g. train.lr=0.003"
    )
    what.add_argument("--pair", type=_pair, metavar="SRC-TGT", help="languages, e.g. es-en")
    what.add_argument("--max-update", type=_count, metavar="N", help="updates of the training")
    what.add_argument("--name", help="name of the row (default: of the configuration or --arch)")
    what.add_argument("--baseline", metavar="ROW", help="test significance against this row")
    seeds = what.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=_number, metavar="S", help="default 1")
    seeds.add_argument("--seeds", type=_numbers, metavar="S,S,...", help="one run after the other")
    where = parser.add_argument_group("where")
    where.add_argument("--output", type=Path, metavar="DIR", help="default runs/DATASET")
    where.add_argument("--data", type=Path, metavar="DIR", help="the raw corpus, if you have it")
    where.add_argument(
        "--prepared", type=Path, metavar="DIR", help="the prepared data (default OUTPUT/data)"
    )
    where.add_argument("--offline", action="store_true", help="never touch the network")
    device = parser.add_argument_group("on what (default: one GPU if there is one, else the CPU)")
    kind = device.add_mutually_exclusive_group()
    kind.add_argument("--gpus", type=_count, metavar="N", help="GPUs of this machine")
    kind.add_argument("--cpu", action="store_true", help="no GPU")
    device.add_argument("--threads", type=_count, metavar="N", help="OMP_NUM_THREADS")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands, as a script, and run nothing"
    )
    return parser.parse_args(argv)


def launch(args: argparse.Namespace) -> None:
    """Do what the flags say.

    Raises:
        ConfigurationError, StageFailed, Stopped: as :func:`capsnmt.experiment.runner.execute`.
    """
    device = choose_device(args.cpu, args.gpus, args.threads, check=not args.dry_run)
    experiment = configure(args)
    runs = [make_run(args, experiment, device, seed) for seed in args.seeds or [args.seed or 1]]
    check_flags(runs[0])
    if args.dry_run:
        print("\n".join(commands.script(run) for run in runs), end="")
        return
    check_folders(args, runs)
    for run in runs:
        execute(run)
    summary = summarise(runs[0].folder.parent, runs[0].folder / "config.json")
    say(f"== {summary['row']}: {runs[0].folder.parent / 'summary.json'}")
    for line in lines(summary):
        say(f"  {line}")


def configure(args: argparse.Namespace) -> Experiment:
    """The configuration that the flags name, with what they override.

    Raises:
        ConfigurationError: it does not exist, is wrong or incomplete.
    """
    if args.config is None and args.arch is None:
        raise ConfigurationError("give --config ROW or --arch ARCH (with --dataset DATASET)")
    if args.config is None and args.dataset is None:
        raise ConfigurationError(f"--arch {args.arch}: give --dataset DATASET or --config ROW, too")
    path = find(args.config or "base", args.dataset)
    experiment = load(path, args.name or (path.stem if args.config else args.arch))
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
    data = Prepared(args.prepared or output / "data", args.data, args.offline)
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
    flags.check_train(run.experiment, _after("fairseq_cli.train", commands.train(run)))
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
            if not path.is_file():
                raise ConfigurationError(
                    f"--baseline {args.baseline}: there is no {path}: run that row first, with "
                    f"--seed {run.seed} and --output {run.output}"
                )


def _after(module: str, command: commands.Command) -> List[str]:
    return list(command.argv[command.argv.index(module) + 1 :])


def _end(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status


def _count(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 1 or more")
    return number


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number") from None


def _pair(text: str) -> List[str]:
    languages = text.split("-")
    if len(languages) != 2 or not all(languages):
        raise argparse.ArgumentTypeError(f"{text!r}: give SOURCE-TARGET, for example en-de")
    return languages


def _numbers(text: str) -> List[int]:
    seeds: List[Any] = [_number(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r}: a seed is there twice")
    return seeds

"""The launcher's flags."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, List, Sequence

from capsnmt.cli import OneLineParser, add_mirrors, check_line, comma_list, positive, seed, shown
from capsnmt.evaluation.text import language
from capsnmt.launch.options import LaunchOptions, Sweep, of_data
from capsnmt.sentences.probing.tasks import TASKS

PARTITION = re.compile(r"[A-Za-z0-9_][\w.+-]*(,[A-Za-z0-9_][\w.+-]*)*", re.ASCII)


def parse(argv: Sequence[str]) -> LaunchOptions:
    """Parse the launcher's flags.

    Raises:
        ConfigurationError: a flag is unknown, its value is wrong, or it has a line end.
    """
    for flag, value in zip(("capsnmt-run", *argv), argv):
        check_line(value, flag)
    return LaunchOptions(**vars(build_parser().parse_args(_joined(argv))))


def _joined(argv: Sequence[str]) -> List[str]:
    """Join ``--sweep`` and its value: argparse would take one that begins with dashes for a flag.

    >>> _joined(["--sweep", "--layer-capsules=1,8", "--cpu"])
    ['--sweep=--layer-capsules=1,8', '--cpu']
    """
    words: List[str] = []
    for word in argv:
        if words and words[-1] in ("--sweep", "--point") and "=" in word:
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def build_parser() -> OneLineParser:
    """Return the launcher's parser; a bad flag raises a ``ConfigurationError`` of one line."""
    parser = OneLineParser(
        prog="capsnmt-run",
        description="Prepare data, train, and evaluate rows of a table: translation, probing or "
        "logical inference. Completed stages are skipped and training resumes: to continue, run "
        "the same command again.",
        # A job drops the flags that submitted it, so they must be written in full.
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to run")
    add_row(what)
    add_axes(what)
    what.add_argument("--pair", type=_pair, metavar="SRC-TGT", help="languages, e.g. es-en")
    add_sweep(what)
    add_baseline(what)
    add_seeds(what)
    where = parser.add_argument_group("where")
    where.add_argument("--output", type=Path, metavar="DIR", help="default runs/DATASET")
    where.add_argument("--data", type=Path, metavar="DIR", help="the raw data, if you have it")
    add_mirrors(where)
    where.add_argument(
        "--prepared", type=Path, metavar="DIR", help="the prepared data (default OUTPUT/data)"
    )
    where.add_argument("--offline", action="store_true", help="do not use the network")
    device = parser.add_argument_group("device (default: one GPU if there is one, else the CPU)")
    kind = device.add_mutually_exclusive_group()
    kind.add_argument("--gpus", type=positive, metavar="N", help="GPUs of each node")
    kind.add_argument(
        "--cpu", nargs="?", const=1, type=positive, metavar="N", help="no GPU; N processes a node"
    )
    device.add_argument(
        "--nodes",
        type=positive,
        default=1,
        metavar="N",
        help="machines: of the job that --slurm submits, or of the SLURM allocation you are in",
    )
    device.add_argument("--threads", type=positive, metavar="N", help="OMP_NUM_THREADS")
    add_submission(device)
    parser.add_argument(
        "--requeue",
        action="store_true",
        help="in a batch job: requeue it when it is preempted or its time is over",
    )
    return parser


def without_submission(argv: Sequence[str]) -> List[str]:
    """Return the flags without those that submit jobs or differ between them.

    >>> without_submission(["--slurm", "gpu", "--seeds", "1,2", "--config", "em", "--slurm=x"])
    ['--config', 'em']
    """
    submission = OneLineParser(add_help=False, allow_abbrev=False)
    add_axes(submission)
    add_sweep(submission)
    add_baseline(submission)
    add_seeds(submission)
    add_submission(submission)
    return submission.parse_known_args(_joined(argv))[1]


def for_initial_run(argv: Sequence[str]) -> List[str]:
    """Return the flags without those that apply only to the rows that they name.

    >>> for_initial_run(["--config", "em", "--set", "train.lr=1", "--set", "data.recipe=null"])
    ['--set', 'data.recipe=null']
    """
    parser = OneLineParser(add_help=False, allow_abbrev=False)
    add_row(parser)
    known, others = parser.parse_known_args(list(argv))
    kept = [word for each in known.assignments if of_data(each) for word in ("--set", each)]
    return [*others, *kept]


def add_row(parser: argparse._ActionsContainer) -> None:
    """Add the flags that choose a configuration and override it."""
    parser.add_argument("--config", metavar="ROW", help="DATASET/ROW or a YAML file")
    parser.add_argument(
        "--dataset",
        help="the data set of --config, --rows and --arch; alone: its row 'baseline'",
    )
    parser.add_argument("--arch", help="the architecture; alone: with the settings of the data set")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="e.g. train.lr=0.003",
    )
    parser.add_argument("--max-update", type=positive, metavar="N", help="updates of the training")
    parser.add_argument("--name", help="name of the row (default: of the configuration or --arch)")


def add_axes(parser: argparse._ActionsContainer) -> None:
    """Add ``--rows`` and ``--tasks``."""
    parser.add_argument(
        "--rows",
        type=comma_list(),
        metavar="ROW,ROW|all",
        help="several rows of --dataset, in turn",
    )
    parser.add_argument(
        "--tasks",
        type=comma_list(TASKS),
        metavar="TASK,TASK",
        help="probing tasks (default: all of the data)",
    )


def add_baseline(parser: argparse._ActionsContainer) -> None:
    """Add ``--baseline``."""
    parser.add_argument("--baseline", metavar="ROW", help="test the significance against this row")


def add_sweep(parser: argparse._ActionsContainer) -> None:
    """Add ``--sweep`` and ``--point``."""
    sweeps = parser.add_mutually_exclusive_group()
    sweeps.add_argument(
        "--sweep",
        action=_Once,
        type=_sweep,
        metavar="FLAG=V,V,...",
        help="a row for each value of a flag of the mechanism, e.g. layer-capsules=1,8,64,512, and "
        "a figure of BLEU over the values; the row of --baseline is not changed",
    )
    sweeps.add_argument(
        "--point",
        action=_Once,
        type=_point,
        dest="sweep",
        metavar="FLAG=V",
        help="only one value of such a sweep",
    )


def add_seeds(parser: argparse._ActionsContainer) -> None:
    """Add ``--seed`` and ``--seeds``."""
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seed", type=_seed, default=[1], dest="seeds", metavar="S", help="default 1"
    )
    seeds.add_argument(
        "--seeds", type=_seeds, default=[1], metavar="S,S,...", help="one run after the other"
    )


def add_submission(parser: argparse._ActionsContainer) -> None:
    """Add ``--slurm`` and ``--dry-run``."""
    parser.add_argument(
        "--slurm",
        nargs="?",
        const="",
        type=_partition,
        metavar="PARTITION",
        help="submit a job for each run; sbatch takes other options from variables such as "
        "SBATCH_TIMELIMIT, SBATCH_ACCOUNT and SBATCH_QOS",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan, as a script, and run nothing"
    )


class _Once(argparse.Action):
    """Store a value; a second one is an error."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "is given twice: one flag can be swept at a time")
        setattr(namespace, self.dest, values)


def _sweep(text: str) -> Sweep:
    sweep = _flag_values(text, "layer-capsules=1,8,64,512")
    if len(sweep.values) == 1:
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: has one value: give several, or one by --point"
        )
    if len(set(sweep.values)) < len(sweep.values):
        raise argparse.ArgumentTypeError(f"{shown(text)}: a value is given twice")
    return sweep


def _point(text: str) -> Sweep:
    sweep = _flag_values(text, "layer-capsules=8")
    if len(sweep.values) > 1:
        raise argparse.ArgumentTypeError(f"{shown(text)}: give one value, or several by --sweep")
    return sweep


def _flag_values(text: str, example: str) -> Sweep:
    flag, _, values = text.partition("=")
    flag = flag.strip().lstrip("-").replace("_", "-")
    found = tuple(value.strip() for value in values.split(","))
    if not flag or not all(found):
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: give a flag and its values, for example {example}"
        )
    return Sweep(flag, found)


def _seed(text: str) -> List[int]:
    return [seed(text)]


def _pair(text: str) -> List[str]:
    languages = text.split("-")
    if len(languages) != 2 or not all(languages) or languages[0] == languages[1]:
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: give SOURCE-TARGET, two languages, for example en-de"
        )
    return [language(code) for code in languages]


def _partition(text: str) -> str:
    if text and not PARTITION.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a partition: give a name, or several separated by commas"
        )
    return text


def _seeds(text: str) -> List[int]:
    seeds = [seed(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r}: a seed is given twice")
    return seeds

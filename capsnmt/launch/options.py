"""The flags of ``capsnmt-run``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence, Tuple

from capsnmt.cli import (
    ConfigurationError,
    OneLineParser,
    add_mirrors,
    check_line,
    comma_list,
    positive,
    seed,
    shown,
)
from capsnmt.sentences.senteval import TASKS


@dataclass(frozen=True)
class Sweep:
    """A flag of fairseq-train, without dashes, and its values, each a row."""

    flag: str
    values: Tuple[str, ...]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags; `build_parser` describes each. ``command`` has all words."""
    for flag, value in zip(("capsnmt-run", *argv), argv):
        check_line(value, flag)
    options = build_parser().parse_args(argv)
    options.command = ("capsnmt-run", *argv)
    if options.resume is not None and sum(word.startswith("--") for word in argv) > 1:
        raise ConfigurationError(
            f"--resume {options.resume} takes no other flag: the run's config.json has all "
            f"settings; drop the others"
        )
    return options


def build_parser() -> OneLineParser:
    """Return the launcher's parser; a bad flag raises a ``ConfigurationError`` of one line."""
    parser = OneLineParser(
        prog="capsnmt-run",
        description="Prepare data, train, and evaluate rows of a table: translation, probing or "
        "logical inference. Completed steps are skipped and training resumes: to continue, run "
        "the same command again.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to run")
    rows = what.add_mutually_exclusive_group()
    rows.add_argument("--config", metavar="ROW", help="DATASET/ROW or a YAML file")
    rows.add_argument(
        "--rows", type=comma_list(), metavar="ROW,ROW|all", help="several rows of --dataset"
    )
    what.add_argument(
        "--dataset", help="the data set of --config, --rows and --arch; alone: its row 'baseline'"
    )
    what.add_argument(
        "--arch",
        help="the architecture; alone: with the settings of the data set, or of --prepared data",
    )
    what.add_argument(
        "--tasks",
        type=comma_list(TASKS),
        metavar="TASK,TASK",
        help="probing tasks (default: all of the data)",
    )
    what.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="e.g. train.lr=0.003",
    )
    what.add_argument("--max-update", type=positive, metavar="N", help="updates of the training")
    what.add_argument("--name", help="name of the row (default: of the configuration or --arch)")
    what.add_argument(
        "--baseline",
        metavar="ROW",
        help="test the significance against this row; with --arch and --prepared data alone, an "
        "architecture, which is trained as well",
    )
    what.add_argument(
        "--sweep",
        type=_sweep,
        metavar="FLAG=V,V,...",
        help="a row per value of a flag, e.g. layer-capsules=1,8,64,512, and a figure of BLEU "
        "over the values; the row of --baseline is not changed",
    )
    what.add_argument(
        "--seeds",
        "--seed",
        type=_seeds,
        default=[1],
        metavar="S,S,...",
        help="a run per seed (default 1)",
    )
    what.add_argument(
        "--write-config", type=Path, metavar="FILE", help="write the settings as YAML, to edit"
    )
    what.add_argument(
        "--resume", type=Path, metavar="DIR", help="the run of DIR, by its config.json"
    )
    where = parser.add_argument_group("where")
    where.add_argument("--output", type=Path, metavar="DIR", help="default runs/DATASET")
    source = where.add_mutually_exclusive_group()
    source.add_argument("--data", type=Path, metavar="DIR", help="the raw data, if you have it")
    add_mirrors(source)
    where.add_argument(
        "--prepared", type=Path, metavar="DIR", help="the prepared data (default OUTPUT/data)"
    )
    device = parser.add_argument_group("device (default: one GPU if there is one, else the CPU)")
    kind = device.add_mutually_exclusive_group()
    kind.add_argument("--gpus", type=positive, metavar="N", help="GPUs per node")
    kind.add_argument(
        "--cpu", nargs="?", const=1, type=positive, metavar="N", help="no GPU; N processes per node"
    )
    device.add_argument(
        "--nodes",
        type=positive,
        default=1,
        metavar="N",
        help="nodes of the job that --slurm submits, or of your SLURM allocation",
    )
    device.add_argument("--threads", type=positive, metavar="N", help="threads per process")
    place = device.add_mutually_exclusive_group()
    place.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="runs side by side on this machine"
    )
    place.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="PARTITION",  # empty: the default
        help="submit a job for each run; sbatch takes other options from variables such as "
        "SBATCH_TIMELIMIT, SBATCH_ACCOUNT and SBATCH_QOS",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan, as a script, and run nothing"
    )
    return parser


def _sweep(text: str) -> Sweep:
    flag, _, listed = text.partition("=")
    flag = flag.strip().lstrip("-").replace("_", "-")
    texts = [value.strip() for value in listed.split(",")]
    if not flag or not all(texts) or len(set(map(_point, texts))) < len(texts):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a flag with different values; give them, such as "
            f"layer-capsules=1,8,64,512"
        )
    return Sweep(flag, tuple(texts))


def _point(text: str) -> object:
    """Return a value of a sweep as a number, if it is one: 0.1 and 1e-1 are one row."""
    try:
        return float(text)
    except ValueError:
        return text


def _seeds(text: str) -> List[int]:
    seeds = [seed(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} has a seed twice; give different seeds")
    return seeds

"""Compare complete trainings: real ``fairseq-train`` command lines in fresh, alternating processes.

A training step alone has no data loading, no trainer, no clipping and no logging. Here both sides
are the commands of a user, and the speed is what fairseq logs.
"""

import argparse
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Mapping, Optional, TextIO

import capsnmt
from capsnmt import process
from capsnmt.cli import ExecutionError
from scripts.benchmark_report import PhaseResult
from scripts.benchmark_systems import System
from scripts.harness import Ratio, medians, take_turns
from scripts.workload import PRECISIONS, SHARED, Setup, matmul_work

PLUGIN = str(Path(capsnmt.__file__).parent)
# the settings of Vaswani et al. 2017; the flags of a system take precedence
SETTINGS = (
    "--optimizer adam --adam-betas '(0.9, 0.98)' --lr 0.0007 --lr-scheduler inverse_sqrt "
    "--warmup-updates 4000 --clip-norm 1 --dropout 0.1"
)
# a training logs this many times, and the second half of the logs counts
LOGS = 10


def compare_trainings(system: System, args: argparse.Namespace, setup: Setup) -> PhaseResult:
    """Train stock and ours in turn; compare their words per second."""
    # fairseq-train makes its folder even with --no-save, and resumes from what it finds there
    with TemporaryDirectory() as save:
        ours = f"--user-dir {shlex.quote(PLUGIN)}"
        commands = {
            "stock": training_command(f"{SETTINGS} {system.stock}", args, save),
            "ours": training_command(f"{ours} {SETTINGS} {system.flags}", args, save),
        }
        environment = {"OMP_NUM_THREADS": str(args.threads)} if args.threads else {}

        def speed(command: List[str]) -> float:
            return words_per_second(output_of(command, environment), args.updates)

        runs = {name: partial(speed, command) for name, command in commands.items()}
        speeds = take_turns(runs, args.repeats)
    return PhaseResult(
        ours=Ratio.of(speeds["ours"], speeds["stock"]),
        floor=None,
        seconds={name: setup.tokens / speed for name, speed in medians(speeds).items()},
        tokens_per_second=medians(speeds),
        work=matmul_work(system.stock, "train", setup) / matmul_work(system.flags, "train", setup),
    )


def training_command(flags: str, args: argparse.Namespace, save: str) -> List[str]:
    """Return the command that trains some updates; ``save`` is an empty folder that stays empty."""
    return [
        *(sys.executable, "-m", "fairseq_cli.train", str(args.end_to_end)),
        *(*shlex.split(SHARED), *shlex.split(flags)),
        *("--max-tokens", str(args.tokens), "--max-update", str(args.updates)),
        *("--seed", str(args.seed), "--num-workers", "0", "--disable-validation"),
        *("--no-save", "--save-dir", save),
        *("--log-format", "json", "--log-interval", str(max(1, args.updates // LOGS))),
        *(["--cpu"] if args.device == "cpu" else []),
        *shlex.split(PRECISIONS[args.dtype]),
    ]


def output_of(
    command: List[str], environment: Mapping[str, str], errors: Optional[TextIO] = None
) -> str:
    """Run a command; return what it printed, with its errors unless they go elsewhere."""
    lines: List[str] = []
    variables = {**process.package_path(), **environment}
    status = process.run(command, variables, lines.append, errors=errors)
    if status:
        last = ("".join(lines).strip().splitlines() or ["no output"])[-1]
        raise ExecutionError(f"{shlex.join(command)} ended with {status}: {last}")
    return "".join(lines)


def words_per_second(log: str, updates: int) -> float:
    """Return the target words per second in the second half of a training.

    ``log`` is the output of ``fairseq-train --log-format json``.
    """
    words = seconds = 0.0
    for stats in training_logs(log):
        if int(stats["num_updates"]) > updates / 2:
            words += float(stats["wpb"])
            seconds += float(stats["wpb"]) / float(stats["wps"])
    if not words:
        raise ExecutionError(
            f"the training ended before half of its {updates} updates; give fewer --updates or "
            f"fewer --tokens"
        )
    return words / seconds


def training_logs(log: str) -> Iterator[Dict[str, Any]]:
    """Yield the statistics of each line that fairseq logs during training."""
    for line in log.splitlines():
        _, found, stats = line.partition("| train_inner | ")
        if found:
            yield json.loads(stats)

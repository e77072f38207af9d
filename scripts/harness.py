"""What benchmarks share: command line, runs that take turns, ratios, the machine, a table."""

from __future__ import annotations

import argparse
import logging
import platform
import statistics
import sys
from dataclasses import dataclass
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence

import torch

from capsnmt.cli import OneLineParser, positive, run_command
from capsnmt.machine import processor

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Ratio:
    """The median and the extremes over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Iterable[float], others: Iterable[float]) -> Ratio:
        """Summarise the ratios of numbers to those of the same repeats."""
        values = [number / other for number, other in zip(numbers, others)]
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def take_turns(
    runs: Mapping[str, Callable[[], Any]], repeats: int, clock: Optional[Callable[[], float]] = None
) -> Dict[str, List[float]]:
    """Return what each run took by the clock, or without one what it measured itself.

    They alternate, so that other load on the machine falls on all.
    """
    found: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock() if clock else 0.0
            measured = run()
            found[name].append(clock() - start if clock else measured)
    return found


def medians(found: Mapping[str, Sequence[float]]) -> Dict[str, float]:
    """Return the median of what each run took."""
    return {name: statistics.median(values) for name, values in found.items()}


def build_parser(doc: Optional[str], threads: Optional[int] = None) -> argparse.ArgumentParser:
    """Build the parser of a benchmark with the flag that all have."""
    parser = OneLineParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    said = f"CPU threads (default {threads or 'those of torch'})"
    parser.add_argument("--threads", type=positive, default=threads, help=said)
    return parser


def add_device(parser: argparse.ArgumentParser, devices: Collection[str] = ("cpu", "cuda")) -> None:
    """Add the device, by default a GPU if there is one, and the precision."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=devices, default=found)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="default fp32")


def parse_arguments(
    parser: argparse.ArgumentParser, argv: Optional[Sequence[str]]
) -> argparse.Namespace:
    """Parse a command line; a bad value ends in one line."""
    args = parser.parse_args(argv)
    if getattr(args, "device", "cpu") == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda, but torch finds no GPU; use --device cpu")
    return args


def use_threads(args: argparse.Namespace) -> None:
    """Give this process the threads of the command line."""
    if args.threads:
        torch.set_num_threads(args.threads)


def machine(device: str) -> str:
    """Return the name of the processor or GPU."""
    if device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        where = f"CPU {processor()}, {torch.get_num_threads()} threads"
    return f"{where}; torch {torch.__version__}, Python {platform.python_version()}"


def line(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def head(titles: Collection[str]) -> str:
    """Return the first two lines of a table in Markdown."""
    return f"{line(titles)}\n{line(['---'] * len(titles))}"


def run_script(main: Callable[[], None]) -> None:
    """Run a benchmark as a command."""
    logging.disable(logging.INFO)  # importing fairseq turns on the messages of every library
    sys.exit(run_command(main))

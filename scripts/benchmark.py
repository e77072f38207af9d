#!/usr/bin/env python3
"""Speed and memory of our systems beside stock fairseq's Transformer, alternating in one process.

Every repeat times stock and ours on the same batch, one right after the other, so that what else
the machine does falls on both; a table's ratio is the median over the repeats of
``stock time / our time`` (1 = as fast as stock, below 1 = slower), its spread their extremes.

    scripts/benchmark.py --json report.json    # every row of the papers, beside their own ratios
    scripts/benchmark.py --paper li2019 duan2020 --phases train decode
    scripts/benchmark.py --rows "EM, enc-self" --size big --device cuda --dtype fp16
    scripts/benchmark.py --system "T = 1: --arch transformer_em_routing --routing-iterations 1"

All of it takes hours on a CPU. With --json every row is written when it is measured, and the same
command goes on after the rows that the file holds.

Where a network makes votes for heads or layers, the *floor* is the same model with the routing
iterations replaced by the plain mean of the votes: the price of that network. What lies between
floor and row is routing itself. The *work* is stock's floating-point operations in matrix products
over ours: the ratio of a machine that is bound by arithmetic, whoever writes the program.
"""

from __future__ import annotations

import argparse
import gc
import logging
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.arguments import OneLineParser
from capsnmt.errors import ConfigurationError
from scripts.benchmark_report import Report, describe_machine, tables
from scripts.parameter_formulas import SUFFIXES
from scripts.rows import PAPERS, ROWS, Row, row_name
from scripts.workload import (
    DTYPES,
    PHASES,
    Workload,
    build,
    has_votes,
    matmul_work,
    mean_of_votes,
    parameters,
    stock_flags,
)


def seconds(run: Callable[[], Any], device: str) -> float:
    """Wall time of one run, the device's queue empty before and after."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


@dataclass
class Ratio:
    """Median and extremes over the repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Ratio:
        """Summarise the repeats."""
        return cls(statistics.median(values), min(values), max(values))


def compare(ours: str, stock: str, phase: str, args: argparse.Namespace) -> Dict[str, Any]:
    """Alternate stock, ours and (where there are votes) the floor on one phase."""
    workload = Workload(args)
    models = {"stock": build(stock, args), "ours": build(ours, args)}
    if has_votes(models["ours"]) and not args.no_floor:
        models["floor"] = mean_of_votes(build(ours, args))
    runs = {
        name: workload.phase(phase, model, stock if name == "stock" else ours)
        for name, model in models.items()
    }
    for run in runs.values():
        for _ in range(args.warmup):
            run()
    times: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(args.repeats):
        for name, run in runs.items():
            times[name].append(seconds(run, args.device))
    medians = {name: statistics.median(values) for name, values in times.items()}
    work = matmul_work(stock, phase, args) / matmul_work(ours, phase, args)
    ratios = {
        name: asdict(Ratio.of([s / o for s, o in zip(times["stock"], values)]))
        for name, values in times.items()
        if name != "stock"
    }
    speeds = {name: workload.tokens(phase) / median for name, median in medians.items()}
    return {**ratios, "seconds": medians, "tokens_per_second": speeds, "work": work}


def measure(row: Row, args: argparse.Namespace, report: Report) -> Dict[str, Any]:
    """Everything about one row, as its report is to hold it."""
    ours = row.command(args.size)
    stock = f"{stock_flags(args.size or row.size)} {row.baseline}".strip()
    memory = {}
    if not args.no_memory:
        known = report.stock_memory(stock)
        memory["stock"] = peak_memory(stock, args) if known is None else known
        memory["ours"] = peak_memory(ours, args)
    return {
        "name": row.name,
        "paper": row.paper,
        "flags": ours,
        "stock_flags": stock,
        "paper_train": row.train,
        "paper_decode": row.decode,
        "extra_parameters": parameters(ours, args) - parameters(stock, args),
        "phases": {phase: compare(ours, stock, phase, args) for phase in args.phases},
        "memory": memory,
    }


def peak_memory(flags: str, args: argparse.Namespace) -> float:
    """GiB that a training step takes at its peak: of the GPU's memory, or of a fresh process."""
    if args.device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        train_two_steps(flags, args)
        return torch.cuda.max_memory_allocated() / 2**30
    command = [sys.executable, __file__, *args.words, "--peak-memory-of", flags]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(output.splitlines()[-1])


def train_two_steps(flags: str, args: argparse.Namespace) -> None:
    """The second step is the first with the optimiser's state in memory."""
    step = Workload(args).phase("train", build(flags, args), flags)
    for _ in range(2):
        step()


def print_peak_memory(flags: str, args: argparse.Namespace) -> None:
    """What the fresh process of :func:`peak_memory` does."""
    train_two_steps(flags, args)
    # not getrusage: its peak is the parent's where that was higher when it started this process
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    print(peak / 2**20)


def parse_arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """The command line; a bad value ends with one line."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="+", type=row_name, default=[], metavar="ROW", help="; ".join(ROWS))
    add("--paper", nargs="+", choices=PAPERS, default=[], help="every row of these papers")
    add("--system", action="append", default=[], metavar="NAME: FLAGS", help="a row of your own")
    add("--size", choices=SUFFIXES, help="default: each row's own; base for --system")
    add("--phases", nargs="+", choices=PHASES, default=PHASES)
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=DTYPES, default="fp32")
    add("--tokens", type=int, default=4096, help="tokens of a batch, each side (default 4096)")
    add("--length", type=int, default=32, help="tokens of a sentence (default 32)")
    add("--sentences", type=int, default=16, help="sentences decoded at once (default 16)")
    add("--beam", type=int, default=4)
    add("--vocabulary", type=int, default=32000)
    add("--repeats", type=int, default=7)
    add("--warmup", type=int, default=2)
    add("--threads", type=int, default=0, help="CPU threads (default: torch's)")
    add("--seed", type=int, default=1)
    add("--no-floor", action="store_true", help="leave out the mean of the votes")
    add("--no-memory", action="store_true", help="leave out the peak memory")
    add("--json", type=Path, metavar="FILE", help="also write every number there, row by row")
    add("--peak-memory-of", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    for name in ("tokens", "length", "sentences", "beam", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name}: {getattr(args, name)}: give 1 or more")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this torch sees no GPU: use --device cpu")
    for system in args.system:
        if ":" not in system:
            parser.error(f"--system: {system!r}: give 'NAME: FLAGS'")
    args.words = list(sys.argv[1:] if argv is None else argv)
    return args


def chosen_rows(args: argparse.Namespace) -> List[Row]:
    """The rows that the flags name; all of them when they name none.

    Raises:
        ConfigurationError: two rows have the same name.
    """
    rows = [row for row in ROWS.values() if row.name in args.rows or row.paper in args.paper]
    for name, _, flags in (system.partition(":") for system in args.system):
        rows.append(Row(name.strip(), "", flags.strip()))
    names = [row.name for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"--system: {name!r} is the name of two rows: change one")
    return rows or list(ROWS.values())


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure and print the tables."""
    args = parse_arguments(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.peak_memory_of:
        print_peak_memory(args.peak_memory_of, args)
        return
    rows = chosen_rows(args)
    report = Report(args)
    print(f"{describe_machine(args)}\n", flush=True)
    for number, row in enumerate(rows, start=1):
        flags = row.command(args.size)
        known = report.holds(row.name, flags)
        if not known:
            report.add(measure(row, args, report))
        did = "already measured" if known else "measured"
        print(f"{did} {number}/{len(rows)}: {row.name}", file=sys.stderr, flush=True)
    print(tables([report.results[row.name] for row in rows], args.phases))


if __name__ == "__main__":
    logging.disable(logging.INFO)  # importing the host turned on the chatter of every library
    main()

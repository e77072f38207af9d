#!/usr/bin/env python3
"""Measure the speed and the memory of our systems against stock fairseq's Transformer.

Stock and ours take turns in one process, on the same batch, so that other load on the machine falls
on both. A table has the median over the repeats of ``stock time / our time`` (1 is as fast as
stock, below 1 is slower), and the extremes.

    scripts/benchmark.py    # every row of the papers, with the papers' ratios
    scripts/benchmark.py --paper li2019 duan2020 --phases train decode
    scripts/benchmark.py --rows wmt14_en_de/li2019_em_enc_self --size big --device cuda --dtype fp16
    scripts/benchmark.py --system "T = 1: --arch transformer_em_routing --routing-iterations 1"

    scripts/benchmark.py --end-to-end DATA-BIN --size base --threads 2 --repeats 3 \\
        --system "fast: --arch capsnmt_transformer --optimizer fused_adam"

--end-to-end compares the words per second of complete trainings, each in its own process.

All rows take hours on a CPU. Each is printed as soon as it is measured; --rows measures the others.

The *floor* of a model is the same model with routing replaced by the mean of the votes: the price
of the network that makes the votes. The difference between floor and row is routing itself. The
*work* is stock's floating-point operations in matrix products over ours: the ratio of a machine
that is bound by arithmetic, whatever the implementation.
"""

import argparse
import dataclasses
import sys
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import torch
from torch.utils.benchmark import timer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.cli import ConfigurationError, at_least, positive
from capsnmt.launch.train import peak_memory
from scripts import harness
from scripts.benchmark_end_to_end import compare_trainings, output_of
from scripts.benchmark_report import PhaseResult, Result, cells, describe_machine, titles
from scripts.benchmark_systems import System, different_rows, row_key, system_of
from scripts.harness import Ratio, line, medians, take_turns
from scripts.paper_rows import PAPERS, SUFFIXES, load_rows
from scripts.workload import (
    PHASES,
    PRECISIONS,
    Setup,
    Workload,
    build,
    forget_peak,
    has_votes,
    matmul_work,
    mean_of_votes,
    parameters,
    stock_flags,
)

# glibc then returns freed tensors to the system at once. Otherwise the peak has the holes between
# small tensors, which depend on the order of allocations, and are a fifth of it.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}


def chosen_systems(args: argparse.Namespace) -> List[System]:
    """Return the systems that the flags name, or all rows if they name none."""
    named = [load_rows()[key] for key in args.rows]
    named += [row for row in different_rows() if row.paper in args.paper and row not in named]
    systems = [system_of(row, args.size) for row in named]
    for name, _, flags in (given.partition(":") for given in args.system):
        systems.append(System(name.strip(), flags.strip(), stock_flags(args.size or "base")))
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{name!r} is the name of two systems: change one")
    return systems or [system_of(row, args.size) for row in different_rows()]


def compare(
    system: System, phase: str, setup: Setup, repeats: int, warmup: int, floor: bool
) -> PhaseResult:
    """Alternate stock, ours and, where there are votes, the ``floor`` on one phase."""
    workload = Workload(setup)
    models = {"stock": build(system.stock, setup), "ours": build(system.flags, setup)}
    if floor and has_votes(models["ours"]):
        models["floor"] = mean_of_votes(build(system.flags, setup))
    runs = {
        name: workload.phase(phase, model, system.stock if name == "stock" else system.flags)
        for name, model in models.items()
    }
    take_turns(runs, warmup, timer)
    times = take_turns(runs, repeats, timer)  # a GPU has nothing to do before and after each
    seconds = medians(times)
    ratios = {name: Ratio.of(times["stock"], taken) for name, taken in times.items()}
    return PhaseResult(
        ours=ratios["ours"],
        floor=ratios.get("floor"),
        seconds=seconds,
        tokens_per_second={name: workload.tokens(phase) / t for name, t in seconds.items()},
        work=matmul_work(system.stock, phase, setup) / matmul_work(system.flags, phase, setup),
    )


def measure(system: System, args: argparse.Namespace, of_stock: Dict[str, float]) -> Result:
    """Measure everything about one system; ``of_stock`` has the peaks of stock models by flags."""
    setup = setup_of(args)
    memory = {}
    if args.end_to_end:
        phases = {"train": compare_trainings(system, args, setup)}
    else:
        if not args.no_memory:
            if system.stock not in of_stock:
                of_stock[system.stock] = training_memory(system.stock, args)
            memory["stock"] = of_stock[system.stock]
            memory["ours"] = training_memory(system.flags, args)
        phases = {
            phase: compare(system, phase, setup, args.repeats, args.warmup, not args.no_floor)
            for phase in args.phases
        }
    return Result(
        system=system,
        extra_parameters=parameters(system.flags, setup) - parameters(system.stock, setup),
        phases=phases,
        memory=memory,
    )


def training_memory(flags: str, args: argparse.Namespace) -> float:
    """Return the peak of a training step in GiB: of the GPU's memory, or of a fresh process."""
    if args.device == "cuda":
        forget_peak()
        train_two_steps(flags, setup_of(args))
        return peak_memory(torch.device("cuda"))
    command = [sys.executable, __file__, *args.words, "--peak-memory-of", flags]
    return float(output_of(command, RETURN_MEMORY, errors=sys.stderr).splitlines()[-1])


def train_two_steps(flags: str, setup: Setup) -> None:
    """Train two steps; the second also has the optimizer's state in memory."""
    step = Workload(setup).phase("train", build(flags, setup), flags)
    for _ in range(2):
        step()


def parse_arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line; a bad value ends with one line."""
    parser = harness.build_parser(__doc__)
    harness.add_device(parser, PRECISIONS)
    add = parser.add_argument
    add("--rows", nargs="+", type=row_key, default=[], metavar="DATASET/ROW", help="these rows")
    add("--paper", nargs="+", choices=PAPERS, default=[], help="every row of these papers")
    add("--system", action="append", default=[], metavar="NAME: FLAGS", help="a system of your own")
    add("--size", choices=SUFFIXES, help="default: each row's own; base for --system")
    add("--phases", nargs="+", choices=PHASES, default=PHASES)
    add("--tokens", type=positive, default=4096, help="tokens of a batch, each side (default 4096)")
    add("--length", type=positive, default=32, help="tokens of a sentence (default 32)")
    add("--sentences", type=positive, default=16, help="sentences decoded at once (default 16)")
    add("--beam", type=positive, default=4, help="default 4")
    add("--vocabulary", type=at_least(5), default=32000, help="default 32000")
    add("--repeats", type=positive, default=7, help="default 7")
    add("--warmup", type=at_least(0), default=2, help="default 2")
    add("--seed", type=at_least(0), default=1)
    add("--end-to-end", metavar="DATA-BIN", help="compare real trainings on these data")
    add("--updates", type=positive, default=100, help="of each of these trainings (default 100)")
    add("--no-floor", action="store_true", help="do not measure the mean of the votes")
    add("--no-memory", action="store_true", help="do not measure the peak memory")
    add("--peak-memory-of", help=argparse.SUPPRESS)
    args = harness.parse_arguments(parser, argv)
    for system in args.system:
        if ":" not in system:
            parser.error(f"--system is {system!r}; give 'NAME: FLAGS'")
    if args.end_to_end:
        args.phases = ["train"]
        if args.dtype == "bf16":
            parser.error(
                "--dtype is bf16, which fairseq does not have; give --autocast bf16 in a --system"
            )
    args.words = list(sys.argv[1:] if argv is None else argv)
    return args


def setup_of(args: argparse.Namespace) -> Setup:
    """Return the batch, the device and the precision that the flags choose."""
    return Setup(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Setup)})


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure, and print each line of the tables as it is known."""
    args = parse_arguments(argv)
    harness.use_threads(args)
    if args.peak_memory_of:  # `training_memory` has started this process
        train_two_steps(args.peak_memory_of, setup_of(args))
        print(peak_memory(torch.device(args.device)))
        return
    systems = chosen_systems(args)
    print(describe_machine(args))
    peaks: Dict[str, float] = {}
    for paper, group in groupby(systems, attrgetter("paper")):
        title = PAPERS.get(paper, paper) or "Other systems"
        print(f"\n### {title}\n\n{titles(args.phases)}", flush=True)
        for system in group:
            print(line(cells(measure(system, args, peaks), args.phases)), flush=True)


if __name__ == "__main__":
    harness.run_script(main)

#!/usr/bin/env python3
"""Measure the routing operators, eager, compiled and as kernels, against the bandwidth.

    scripts/benchmark_kernels.py                    # every shape, forward and backward, as Markdown
    scripts/benchmark_kernels.py --tokens 8192 --dtype bf16 --iterations 3
    scripts/benchmark_kernels.py --threads 1        # in processor time

The floor is the time in which the device copies the bytes that an operator cannot avoid. Forward
it reads the votes and writes the capsules. Backward it reads the votes and the gradient of the
capsules, and writes the gradient of the votes.

On a CPU with one thread the time is the processor's, which other work changes little.
"""

import argparse
import functools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from capsnmt.cli import positive
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS, RoutingAlgorithm
from scripts import harness
from scripts.harness import DTYPES, machine

BACKENDS = {"cpu": ("eager", "compiled", "cpp"), "cuda": ("eager", "compiled", "triton")}
PASSES = ("forward", "forward and backward")
COPIED = 2**30
"""Bytes that are copied to measure the bandwidth: more than any cache."""
VOTES = 2**29
"""Bytes of the votes on a GPU, where no number of tokens is given: more than its cache, too."""


@dataclass(frozen=True)
class Shape:
    """Votes of I inputs for N capsules of dimension D at each token."""

    title: str  # where the papers have it
    algorithm: RoutingAlgorithm
    inputs: int  # I
    capsules: int  # N
    dimension: int  # D

    @property
    def name(self) -> str:
        """The algorithm, where it is, and I x N."""
        algorithm = type(self.algorithm).__name__.lower()
        return f"{algorithm}, {self.title}, {self.inputs} x {self.capsules}"


# The heads of our tiny model, of the base and the big model of Li et al. 2019, and the six layers
# of Dou et al. 2019 with 512 capsules of dimension 1.
SHAPES = [
    *(
        Shape(f"heads, {size}", algorithm, inputs, capsules, 1)
        for size, inputs, capsules in (("tiny", 4, 128), ("base", 8, 512), ("big", 16, 1024))
        for algorithm in OF_HEADS.values()
    ),
    *(Shape("layers, base", algorithm, 6, 512, 1) for algorithm in OF_LAYERS.values()),
]


def operator(algorithm: RoutingAlgorithm, votes: Tensor, iterations: int, backend: str) -> Tensor:
    """Route with learned vectors of 0, where they start over heads."""
    zeros = torch.zeros(votes.size(-2), device=votes.device)
    costs = [zeros for _ in algorithm.costs]
    return algorithm.route(votes, *costs, iterations=iterations, backend=backend)


def moved(votes: Tensor, capsules: Tensor) -> Dict[str, int]:
    """Return the bytes that each pass must move."""
    read, written = votes.nbytes, capsules.nbytes
    forward = read + written
    return dict(zip(PASSES, (forward, forward + read + written + read)))


def bandwidth(device: str, copied: int = COPIED) -> float:
    """Return the bytes per second that the device reads and writes in a large copy."""
    source = torch.empty(copied // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return copied / seconds(functools.partial(target.copy_, source), device)


def tokens_of(shape: Shape, args: argparse.Namespace) -> int:
    """Return the tokens whose votes are more than a cache holds; 4,096 on a CPU."""
    if args.device == "cpu":
        return 4096
    return VOTES // (DTYPES[args.dtype].itemsize * shape.inputs * shape.capsules * shape.dimension)


def seconds(run: Callable[[], Any], device: str) -> float:
    """Return the median time of a call, after one that compiles; a GPU is waited for."""
    run()
    threads = torch.get_num_threads()
    clock = {"timer": time.process_time} if threads == 1 and device == "cpu" else {}
    timer = Timer("run()", globals={"run": run}, num_threads=threads, **clock)
    return timer.blocked_autorange(min_run_time=0.5).median


def passes(shape: Shape, votes: Tensor, iterations: int, backend: str) -> List[Callable[[], Any]]:
    """Return functions that run each of :data:`PASSES` once."""
    trained = votes.detach().requires_grad_()

    def forward() -> None:
        with torch.no_grad():
            operator(shape.algorithm, votes, iterations, backend)

    def both() -> None:
        trained.grad = None
        capsules = operator(shape.algorithm, trained, iterations, backend)
        capsules.backward(torch.ones_like(capsules))

    return [forward, both]


def measure(
    shape: Shape, args: argparse.Namespace, speed: float, backends: Sequence[str]
) -> List[List[str]]:
    """Return one line of the table for each pass; ``speed`` is the bandwidth of the device."""
    torch.manual_seed(1)
    tokens = args.tokens or tokens_of(shape, args)
    size = (tokens, shape.inputs, shape.capsules, shape.dimension)
    votes = torch.randn(size, device=args.device, dtype=DTYPES[args.dtype])
    with torch.no_grad():
        capsules = operator(shape.algorithm, votes[:2], args.iterations, "eager")
    written = torch.empty((tokens, *capsules.shape[1:]), dtype=capsules.dtype, device="meta")
    floors = {name: size / speed for name, size in moved(votes, written).items()}
    per_vote = 1e9 / votes.numel()
    lines = [[shape.name, one, f"{floor * per_vote:.2f}"] for one, floor in floors.items()]
    for backend in backends:
        runs = passes(shape, votes, args.iterations, backend)
        for line, run, floor in zip(lines, runs, floors.values()):
            taken = seconds(run, args.device)
            line.append(f"{taken * per_vote:.2f} ({taken / floor:.1f})")
    return lines


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure and print the table."""
    parser = harness.build_parser(__doc__)
    harness.add_device(parser, DTYPES)
    said = "default 4096 on a CPU, on a GPU votes of 512 MiB"
    parser.add_argument("--tokens", type=positive, help=said)
    parser.add_argument("--iterations", type=positive, default=3, help="T (default 3)")
    args = harness.parse_arguments(parser, argv)
    harness.use_threads(args)
    speed = bandwidth(args.device)
    print(
        f"{machine(args.device)}; votes in {args.dtype}, "
        f"{args.iterations} iterations; a copy moves {speed / 1e9:,.0f} GB/s. Nanoseconds a vote, "
        f"and in brackets the multiple of the floor.\n"
    )
    titles = ("operator and votes (I x N)", "pass", "floor", *BACKENDS[args.device])
    print(harness.head(titles))
    for shape in SHAPES:
        for cells in measure(shape, args, speed, BACKENDS[args.device]):
            print(harness.line(cells), flush=True)


if __name__ == "__main__":
    harness.run_script(main)

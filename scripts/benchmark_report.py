"""What the benchmark measured, and its tables."""

import argparse
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from capsnmt.files import own_version
from scripts.benchmark_systems import System
from scripts.harness import Ratio, head, machine


@dataclass(frozen=True)
class PhaseResult:
    """The measurements of one phase."""

    ours: Ratio  # stock time over our time
    floor: Optional[Ratio]  # over that of the mean of the votes; None where there are no votes
    seconds: Dict[str, float]  # the median time of each model
    tokens_per_second: Dict[str, float]  # of each model
    work: float  # stock's operations over ours


@dataclass(frozen=True)
class Result:
    """The measurements of one system."""

    system: System
    extra_parameters: int  # that it adds
    phases: Dict[str, PhaseResult]
    memory: Dict[str, float]  # the peak of ours and stock in GiB, if it was measured


def describe_machine(args: argparse.Namespace) -> str:
    """Return what the numbers were measured on, and how."""
    own = args.rows or args.paper or not args.system
    size = args.size or ("each row in its own size" if own else "base")
    what = f"{machine(args.device)}; capsnmt {own_version()}; {size}, {args.dtype}"
    if args.end_to_end:
        return (
            f"{what}, fairseq-train on {args.end_to_end}, {args.tokens} tokens per batch, "
            f"{args.updates} updates; {args.repeats} repeats"
        )
    return (
        f"{what}, vocabulary {args.vocabulary}, batches of {args.tokens} tokens with padding, in "
        f"sentences of about {args.length}, decoding {args.sentences} of {args.length} with beam "
        f"{args.beam}; {args.repeats} repeats"
    )


def titles(phases: Sequence[str]) -> str:
    """Return the head of a table."""
    found = ["system", "parameters"]
    for phase in phases:
        found += [f"{phase}, ours / stock", f"{phase}, floor / stock", "work", "the paper"]
    return head([*found, "tokens/s in training", "peak memory, ours / stock (GiB)"])


def cells(result: Result, phases: Sequence[str]) -> List[str]:
    """Return one line of a table."""
    row = [result.system.name, count(result.extra_parameters)]
    for phase in phases:
        measured = result.phases[phase]
        row += [str(measured.ours), str(measured.floor or ""), f"{measured.work:.2f}"]
        paper = result.system.paper_speed.get(phase)
        row.append(f"{paper:.2f}" if paper else "")
    trained, memory = result.phases.get("train"), result.memory
    row += [f"{trained.tokens_per_second['ours']:,.0f}" if trained else ""]
    row += [f"{memory['ours']:.2f} / {memory['stock']:.2f}" if memory else ""]
    return row


def count(parameters: int) -> str:
    """Return a difference of counts, in millions unless it is small."""
    return f"{parameters / 1e6:+.1f}M" if abs(parameters) >= 50_000 else f"{parameters:+,}"

"""What the benchmark measured: its records, its file that grows row by row, and its tables."""

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence

from capsnmt import records
from capsnmt.cli import ConfigurationError, check_output_file
from capsnmt.files import own_version
from scripts.benchmark_systems import System
from scripts.harness import Ratio, head, line, machine
from scripts.paper_rows import PAPERS

# Flags that choose rows or name a file; they change no measurement.
NO_SETTINGS = ("rows", "paper", "system", "json", "peak_memory_of", "words", "threads")


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
    date: str = ""
    commit: str = ""  # our version, with its commit


class Saved(records.Record, frozen=True, kw_only=True):
    """The file of ``--json``."""

    settings: Dict[str, Any]  # that are the same for all results
    results: List[Result]


class Report:
    """The results by name; with ``--json``, also those that an earlier command left in the file.

    Raises:
        ConfigurationError: the file is not a report, or its results cannot be compared with ours.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = args.json
        settings = {name: v for name, v in vars(args).items() if name not in NO_SETTINGS}
        settings["phases"] = list(args.phases)
        self.settings = {**settings, "machine": machine(args.device)}
        self.results: Dict[str, Result] = {}
        if self.path and self.path.exists():
            self.results = self.read()

    def read(self) -> Dict[str, Result]:
        """Return the results in the file."""
        check_output_file(self.path, "--json")
        report = records.load(self.path)
        try:
            saved = records.build(report, Saved, self.path)
        except records.RecordError:
            raise ConfigurationError(
                f"--json {self.path} is not a report of this benchmark; give another file"
            ) from None
        for name, ours in self.settings.items():
            theirs = saved.settings.get(name)
            if theirs != ours:
                raise ConfigurationError(
                    f"--json {self.path} has rows that were measured with {name} {theirs}, not "
                    f"{ours}; give another file or that setting"
                )
        return {result.system.name: result for result in saved.results}

    def holds(self, system: System) -> bool:
        """Return whether a system is measured."""
        return system.name in self.results and self.results[system.name].system == system

    def stock_memory(self, flags: str) -> Optional[float]:
        """Return the peak memory of a stock model that was measured for another row."""
        same = (result for result in self.results.values() if result.system.stock == flags)
        return next((result.memory["stock"] for result in same if result.memory), None)

    def add(self, result: Result) -> None:
        """Keep a result, and write it at once."""
        today = time.strftime("%Y-%m-%d")
        self.results[result.system.name] = replace(result, date=today, commit=own_version())
        if self.path:
            saved = Saved(settings=self.settings, results=[*self.results.values()])
            records.write(self.path, saved)


def describe_machine(args: argparse.Namespace) -> str:
    """Return what the numbers were measured on, and how."""
    own = args.rows or args.paper or not args.system
    size = args.size or ("each row in its own size" if own else "base")
    what = f"{machine(args.device)}; {size}, {args.dtype}"
    if args.end_to_end:
        return (
            f"{what}, fairseq-train on {args.end_to_end}, {args.tokens} tokens per batch, "
            f"{args.updates} updates; {args.repeats} repeats"
        )
    return (
        f"{what}, vocabulary {args.vocabulary}, batches of {max(1, args.tokens // args.length)} x "
        f"{args.length} tokens, decoding {args.sentences} sentences with beam {args.beam}; "
        f"{args.repeats} repeats"
    )


def tables(results: Sequence[Result], phases: Sequence[str]) -> str:
    """Return the results as Markdown, one table for each paper."""
    titles = {"": "Other systems", **PAPERS}
    groups: Dict[str, List[Result]] = {}
    for result in results:
        groups.setdefault(result.system.paper, []).append(result)
    return "\n\n".join(
        f"### {titles.get(paper, paper)}\n\n{table(group, phases)}"
        for paper, group in groups.items()
    )


def table(results: Sequence[Result], phases: Sequence[str]) -> str:
    """Return the results of one paper."""
    titles = ["system", "parameters"]
    for phase in phases:
        titles += [f"{phase}, ours / stock", f"{phase}, floor / stock", "work", "the paper"]
    titles += ["tokens/s in training", "peak memory, ours / stock (GiB)"]
    return "\n".join([head(titles), *(line(cells(result, phases)) for result in results)])


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

"""What the benchmark measured: its file, which grows row by row, and its tables."""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch

from capsnmt.errors import ConfigurationError
from capsnmt.files import read_json, write_json
from capsnmt.report.machine import processor
from scripts.rows import PAPERS

# flags that choose rows, or say where to write: they change no number
NO_SETTINGS = ("rows", "paper", "system", "json", "peak_memory_of", "words", "threads")


class Report:
    """The measured rows by name; with ``--json``, what an earlier command left there as well.

    Raises:
        ConfigurationError: the file is no report, or one of measurements that cannot be compared.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = args.json
        settings = {name: v for name, v in vars(args).items() if name not in NO_SETTINGS}
        settings["phases"] = list(args.phases)
        self.settings = {**settings, "machine": machine(args)}
        self.results: Dict[str, Dict[str, Any]] = {}
        if self.path and self.path.exists():
            self.results = self.read()

    def read(self) -> Dict[str, Dict[str, Any]]:
        """The rows of the file."""
        report = read_json(self.path)
        if not (isinstance(report, dict) and {"settings", "results"} <= set(report)):
            raise ConfigurationError(f"--json: {self.path} is no report of rows: give another file")
        for name, ours in self.settings.items():
            theirs = report["settings"].get(name)
            if theirs != ours:
                raise ConfigurationError(
                    f"--json: the rows of {self.path} were measured with {name} {theirs}, not "
                    f"{ours}: give another file or that setting"
                )
        return {result["name"]: result for result in report["results"]}

    def holds(self, name: str, flags: str) -> bool:
        """Whether the row is measured, with these flags."""
        return self.results.get(name, {}).get("flags") == flags

    def stock_memory(self, flags: str) -> Optional[float]:
        """The peak memory of a baseline that another row has measured."""
        memories = (r["memory"] for r in self.results.values() if r["stock_flags"] == flags)
        return next((memory["stock"] for memory in memories if memory), None)

    def add(self, result: Dict[str, Any]) -> None:
        """Keep a row, in the file at once."""
        when = {"date": time.strftime("%Y-%m-%d"), "commit": commit()}
        self.results[result["name"]] = {**result, **when}
        if self.path:
            results = list(self.results.values())
            write_json(self.path, {"settings": self.settings, "results": results})


def commit() -> str:
    """The commit that is measured, as git tells it; empty where it cannot."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        here = Path(__file__).resolve().parent
        return subprocess.run(
            command, cwd=here, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine(args: argparse.Namespace) -> str:
    """What computes."""
    if args.device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        where = f"CPU {processor()}, {torch.get_num_threads()} threads"
    return f"{where}; torch {torch.__version__}, Python {platform.python_version()}"


def describe_machine(args: argparse.Namespace) -> str:
    """What the numbers were measured on, and how."""
    return (
        f"{machine(args)}; {args.size or 'each row in its own size'}, {args.dtype}, vocabulary "
        f"{args.vocabulary}, batches of {max(1, args.tokens // args.length)} x {args.length} "
        f"tokens, decoding {args.sentences} sentences with beam {args.beam}; {args.repeats} repeats"
    )


def tables(results: Sequence[Dict[str, Any]], phases: Sequence[str]) -> str:
    """The results as Markdown, a table for each paper."""
    titles = {"": "capsnmt", **PAPERS}
    groups = {paper: [r for r in results if r["paper"] == paper] for paper in titles}
    return "\n\n".join(
        f"### {titles[paper]}\n\n{table(rows, phases)}" for paper, rows in groups.items() if rows
    )


def table(results: Sequence[Dict[str, Any]], phases: Sequence[str]) -> str:
    """The results of one paper; ``forward`` is a phase that no paper times."""
    head = ["system", "parameters"]
    for phase in phases:
        head += [f"{phase}, ours / stock", f"{phase}, floor / stock"]
        head += ["work", *(["the paper"] if phase != "forward" else [])]
    head += ["tokens/s in training", "peak memory, ours / stock (GiB)"]
    lines = [head, ["---"] * len(head), *(cells(result, phases) for result in results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(result: Dict[str, Any], phases: Sequence[str]) -> List[str]:
    """One line of the table."""
    row = [result["name"], count(result["extra_parameters"])]
    for phase in phases:
        measured = result["phases"][phase]
        row += [ratio(measured["ours"]), ratio(measured["floor"]) if "floor" in measured else ""]
        row += [f"{measured['work']:.2f}"]
        paper = result.get(f"paper_{phase}")
        row += [f"{paper:.2f}" if paper else ""] if phase != "forward" else []
    speed = result["phases"].get("train", {}).get("tokens_per_second", {}).get("ours")
    memory = result["memory"]
    row += [f"{speed:,.0f}" if speed else ""]
    row += [f"{memory['ours']:.2f} / {memory['stock']:.2f}" if memory else ""]
    return row


def ratio(values: Dict[str, float]) -> str:
    """Median and extremes."""
    return f"{values['median']:.2f} ({values['low']:.2f}-{values['high']:.2f})"


def count(parameters: int) -> str:
    """A difference of counts, in millions where that says anything."""
    return f"{parameters / 1e6:+.1f}M" if abs(parameters) >= 50_000 else f"{parameters:+,}"

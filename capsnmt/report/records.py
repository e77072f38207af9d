"""The report's records: data, commands, versions, machine."""

from __future__ import annotations

import re
import shlex
from typing import Any, Dict, Iterator, Mapping, Sequence

from capsnmt.report.blocks import Block, Code, Heading, Paragraph, Preformatted, Table
from capsnmt.report.results import NONE
from capsnmt.runs.finished import FinishedRun


def data(manifest: Mapping[str, Any], languages: Sequence[str]) -> Iterator[Block]:
    """What the corpus is, how many pairs, and the command that makes it."""
    if manifest.get("description"):
        yield Paragraph(f"{manifest['description']}.")
    sides = dict(_lines_of(manifest, languages[0]))
    yield Table(
        "Sentence pairs",
        ["text", "sentence pairs"],
        [[Code(name), f"{lines:,}"] for name, lines in sides.items()],
        numeric=1,
    )
    if manifest.get("command"):
        yield Preformatted(manifest["command"], "bash")


def _lines_of(manifest: Mapping[str, Any], language: str) -> Iterator[Any]:
    """Raw splits, and the training text that was kept, each with its lines."""
    for step in manifest.get("steps", {}).values():
        for name, file in step.get("files", {}).items():
            if re.fullmatch(rf"(raw|clean)/.+\.{re.escape(language)}", name) and "lines" in file:
                yield name.rsplit(".", 1)[0], file["lines"]


def commands(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Block]:
    """Every command of every run, to be copied."""
    for run, name in zip(runs, names):
        yield Heading(name)
        if run.description.command:
            typed = ["python", "-m", "capsnmt.experiment", *run.description.command[1:]]
            yield Paragraph("One command does it all:")
            yield Preformatted(shlex.join(map(str, typed)), "bash")
            yield Paragraph("It runs:")
        script = run.folder.read_commands()
        yield Preformatted(script, "bash", folded=f"commands.sh of {name}")


def versions(
    runs: Sequence[FinishedRun], names: Sequence[str], machine: Mapping[str, str]
) -> Iterator[Block]:
    """What the runs were made with, and the machine of this report."""
    found = [_versions(run) for run in runs]
    packages = sorted({package for each in found for package in each})
    columns = list(names)
    if all(each == found[0] for each in found):
        found, columns = found[:1], ["version"]
    yield Table(
        "Versions",
        ["package", *columns],
        [[package, *(str(each.get(package, NONE)) for each in found)] for package in packages],
    )
    found_on = [run.description for run in runs]
    devices = {str(each.device): each.device_name or "not recorded" for each in found_on}
    told = "; ".join(f"{device} ({name})" for device, name in sorted(devices.items()))
    yield Paragraph(f"Trained on: {told}.")
    told = "; ".join(f"{key} {value}" for key, value in machine.items())
    yield Paragraph(f"This report was made on: {told}.")


def _versions(run: FinishedRun) -> Dict[str, Any]:
    evaluated = next(iter(run.scores.values())).versions
    return {**{k: v for k, v in evaluated.items() if v}, **run.description.versions}

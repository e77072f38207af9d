"""How the runs were made: data, commands, versions, machine."""

from __future__ import annotations

import re
import shlex
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from capsnmt.corpora.prepared import DataManifest
from capsnmt.report.cells import NONE
from capsnmt.report.elements import Code, Element, Heading, Paragraph, Preformatted, Table
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import RunConfig


def data(manifest: DataManifest, languages: Sequence[str]) -> Iterator[Element]:
    """Yield the corpus, its numbers of sentence pairs, and the command that prepares it."""
    if manifest.description:
        yield Paragraph(f"{manifest.description}.")
    source = re.compile(rf"((?:raw|clean)/.+)\.{re.escape(languages[0])}")
    found = [(source.fullmatch(name), lines) for name, lines in manifest.lines.items()]
    yield Table(
        "Sentence pairs",
        ["text", "sentence pairs"],
        [[Code(match[1]), f"{lines:,}"] for match, lines in found if match],
        numeric=1,
    )
    if manifest.command:
        yield Preformatted(manifest.command, "bash")


def commands(runs: Sequence[FinishedRun], names: Sequence[str]) -> Iterator[Element]:
    """Yield all commands of every run, ready to copy."""
    for run, name in zip(runs, names):
        yield Heading(name)
        initial = run.training.initial
        if initial is not None:
            yield Paragraph([f"Initialised from {initial}: ", Code(initial.checkpoint), "."])
        if run.config.command:
            yield Paragraph("One command runs everything:")
            yield Preformatted(launcher_command(run.config), "bash")
            yield Paragraph("It runs:")
        yield Preformatted(run.script, "bash", folded=f"{run.folder.commands.name} of {name}")


def launcher_commands(runs: Sequence[FinishedRun]) -> Iterator[Element]:
    """Yield the launcher's commands that started the runs, and their initial models, each once."""
    started = [(run.row, run.training.initial) for run in runs]
    for row, initial in dict.fromkeys((row, str(each)) for row, each in started if each):
        yield Paragraph(f"{row}: initialised from {initial}.")
    found = [launcher_command(run.config) for run in runs if run.config.command]
    if found:
        yield Preformatted("\n".join(dict.fromkeys(found)), "bash")


def launcher_command(config: RunConfig) -> str:
    """Return the command line of the launcher that started a run."""
    return shlex.join(["capsnmt-run", *config.command[1:]])


def versions(
    runs: Sequence[FinishedRun], names: Sequence[str], machine: Mapping[str, str]
) -> Iterator[Element]:
    """Yield the versions that the runs used, and their machines."""
    columns: List[Tuple[Dict[str, str], List[str]]] = []  # versions, the names that share them
    for run, name in zip(runs, names):
        own = versions_of(run)
        sharing = next((found for each, found in columns if each == own), None)
        if sharing is None:
            columns.append((own, [name]))
        elif name not in sharing:
            sharing.append(name)
    packages = sorted({package for each, _ in columns for package in each})
    header = [", ".join(found) for _, found in columns] if len(columns) > 1 else ["version"]
    yield Table(
        "Versions",
        ["package", *header],
        [[package, *(each.get(package, NONE) for each, _ in columns)] for package in packages],
    )
    devices = {run.training.device: run.training.device_name for run in runs}
    trained_on = "; ".join(f"{device} ({name})" for device, name in sorted(devices.items()))
    yield Paragraph(f"Trained on: {trained_on}.")
    made_on = "; ".join(f"{key} {value}" for key, value in machine.items())
    yield Paragraph(f"This report was made on: {made_on}.")


def versions_of(run: FinishedRun) -> Dict[str, str]:
    """Return the versions of the evaluation and, where they differ, those of the training."""
    evaluated: Mapping[str, object] = {}
    if not run.config.classifies:
        evaluated = next(iter(run.scores.values())).versions
    used = {package: str(version) for package, version in evaluated.items() if version}
    return {**used, **run.training.versions}

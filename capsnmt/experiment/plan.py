"""What a run will do, as a script that a person can check and a shell can run."""

from __future__ import annotations

import shlex
from typing import Dict, List

from capsnmt.experiment import commands
from capsnmt.experiment.commands import Command, Run


def plan(run: Run) -> List[Command]:
    """All commands of a run in their order."""
    stages = [commands.prepare(run), commands.train(run), commands.average(run)]
    for test_set in run.test_sets:
        stages += [commands.generate(run, test_set), commands.score(run, test_set)]
    return [command for command in stages if command is not None]


def script(run: Run) -> str:
    """The commands of a run as a bash script that does the same without the launcher."""
    lines = ["#!/usr/bin/env bash", *header(run), "set -euo pipefail", *exports(run)]
    for command in plan(run):
        lines += ["", f"# {command.stage}", command.shell()]
    return "\n".join(lines) + "\n"


def header(run: Run) -> List[str]:
    """What the run is, how its update is split, and where its files will lie, as comments."""
    files: Dict[str, str] = {
        "data": f"{run.data.folder} (manifest.json tells how each file was made)",
        "training": f"{run.checkpoints}, train.log",
        "model": str(run.model),
        "results": f"{run.folder / 'scores.json'}, {run.folder.parent / 'summary.json'}",
    }
    width = max(map(len, files))
    return [
        f"# {run.experiment.row}, seed {run.seed}, {run.device}",
        f"# {run.batch}",
        *([f"# {run.left_out}"] if run.left_out else []),
        *(f"# {what:{width}}  {where}" for what, where in files.items()),
    ]


def exports(run: Run) -> List[str]:
    """The variables of the commands, as lines of a script."""
    variables = commands.environment(run.device)
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]

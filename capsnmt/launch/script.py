"""A run as a script that a person can check and a shell can run."""

from __future__ import annotations

import shlex
from typing import Dict, List

from capsnmt.launch import training
from capsnmt.launch.plan import kind
from capsnmt.launch.run import Run, environment
from capsnmt.steps import Step


def steps(run: Run) -> List[Step]:
    """Return all steps of a run in their order."""
    first = kind(run).prepare(run)
    return [*([] if first is None else [first]), training.train(run), *kind(run).evaluation(run)]


def script(run: Run) -> str:
    """Return the commands of a run as a bash script that does the same without the launcher."""
    lines = ["#!/usr/bin/env bash", *header(run), "set -euo pipefail", *exports(run)]
    for step in steps(run):
        lines += ["", f"# {step.name}", step.shell()]
    return "\n".join(lines) + "\n"


def header(run: Run) -> List[str]:
    """Return the run, the split of its update and the places of its files, as comments."""
    warning = training.warning(run)
    files: Dict[str, str] = {
        "data": f"{run.data.folder} (manifest.json says how each file was made)",
        **({} if run.initial is None else {"start": str(run.initial.model(run.config))}),
        "training": f"{run.folder.checkpoints}, {run.folder.train_log.name}",
        "model": str(run.model),
        "results": f"{run.result}, {run.folder.summary}",
    }
    width = max(map(len, files))
    return [
        f"# {run.title}, {run.device}",
        f"# {training.batch(run)}",
        *([f"# {warning}"] if warning else []),
        *(f"# {what:{width}}  {where}" for what, where in files.items()),
    ]


def exports(run: Run) -> List[str]:
    """Return the variables of the commands, as lines of a script."""
    return [
        f"export {name}={shlex.quote(value)}" for name, value in environment(run.device).items()
    ]

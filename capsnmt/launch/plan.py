"""The plan of a run: a script that a person can check and a shell can run."""

from __future__ import annotations

import shlex
import textwrap
from typing import Dict, List, Sequence

from capsnmt.launch.run import Run, environment

_wrapper = textwrap.TextWrapper(
    width=100,
    initial_indent="#   ",
    subsequent_indent="#     ",
    break_long_words=False,
    break_on_hyphens=False,
)


def script(run: Run) -> str:
    """Return the commands of a run as a bash script that does the same without the launcher."""
    lines = ["#!/usr/bin/env bash", *header(run), "set -euo pipefail", *exports(run)]
    for stage in run.stages():
        lines += ["", f"# {stage.name}"]
        lines += data_steps(run) if stage.name == "prepare" else []
        lines.append(stage.shell())
    return "\n".join(lines) + "\n"


def last_step(name: str, command: Sequence[str], waits: bool) -> str:
    """Return the step that follows all runs of a launch, as the end of a script.

    Args:
        name: what it does.
        command: its command.
        waits: whether the runs are jobs, so that the user starts it when they are finished.
    """
    line = shlex.join(command)
    return (
        f"\n# {name}, when the jobs are finished\n#   {line}\n"
        if waits
        else f"\n# {name}\n{line}\n"
    )


def header(run: Run) -> List[str]:
    """Return the run, the split of its update and the places of its files, as comments."""
    files: Dict[str, str] = {
        "data": f"{run.data_folder} (manifest.json says how each file was made)",
        **({} if run.initial is None else {"start": _start(run.initial)}),
        "training": f"{run.folder.checkpoints}, {run.folder.train_log.name}",
        "model": str(run.model),
        "results": ", ".join(map(str, run.results)),
    }
    width = max(map(len, files))
    return [
        f"# {run.title}, {run.device}",
        f"# {run.batch}",
        *([f"# {run.warning}"] if run.warning else []),
        *(f"# {what:{width}}  {where}" for what, where in files.items()),
    ]


def _start(initial: Run) -> str:
    finished = ", which is finished" if initial.is_finished else ""
    return f"{initial.model}, the model of {initial.title}{finished}"


def exports(run: Run) -> List[str]:
    """Return the variables of the commands, as lines of a script."""
    return [
        f"export {name}={shlex.quote(value)}" for name, value in environment(run.device).items()
    ]


def data_steps(run: Run) -> List[str]:
    """Return the steps of the data preparation, as comments."""
    return [line for step in run.data_steps() for line in _wrapper.wrap(step)]

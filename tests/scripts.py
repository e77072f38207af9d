"""The scripts of the project, up to the commands that they start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import List, Sequence, Tuple

from capsnmt.launch import options, plan
from capsnmt.launch.run import Run
from capsnmt.runs.records import Device
from tests.support import REPO

# an interpreter that writes down the number of its arguments, and these, unless asked who it is
STUB = """#!/bin/sh
[ "$1" != -c ] || exit 0
printf '%s\\0' "$#" "$@" >>"${0%/*}/calls"
"""


def launches(
    script: str, *flags: str, cwd: Path, stub: Path
) -> Tuple[subprocess.CompletedProcess, List[List[str]]]:
    """Run a script as a user does, with an interpreter that does nothing.

    A fresh interpreter imports for seconds; the caller passes the arguments to the launcher in
    the process of the tests.

    Args:
        script: its name.
        flags: its arguments.
        cwd: the current folder.
        stub: an empty folder for the interpreter.

    Returns:
        The completed script, and the arguments of each start of the launcher.
    """
    python, calls = stub / "python", stub / "calls"
    python.write_text(STUB, "utf-8")
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", str(REPO / "scripts" / script), *flags],
        cwd=cwd,
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    words = calls.read_text("utf-8").split("\0")[:-1] if calls.exists() else []
    started = []
    while words:
        end = 1 + int(words[0])
        module, arguments = words[1:3], words[3:end]
        assert module == ["-m", "capsnmt.launch"]
        started.append(arguments)
        words = words[end:]
    return done, started


def planned(arguments: Sequence[str]) -> List[Run]:
    """Return the runs of a start of the launcher, on the CPU; their settings are checked."""
    runs = plan.resolve(options.parse(arguments), Device(), arguments)
    plan.check(runs)
    return runs

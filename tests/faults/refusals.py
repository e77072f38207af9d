"""Refusals that need files or bounds; command lines are rows of frozen/data/refusals.txt.

The status is 2, there is one line of at most 300 characters, and it names the value, what is
allowed and the fix.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Mapping

from tests import forked
from tests.commands import environment

LONGEST = 300


def run(
    folder: Path,
    module: str,
    *argv: object,
    stdin: str = "",
    variables: Mapping[str, str] = {},
) -> subprocess.CompletedProcess:
    """Run ``python -m module argv`` in a folder, with bounds of time and memory.

    Args:
        folder: the current folder of the command.
        module: the module.
        argv: its arguments.
        stdin: its input.
        variables: further variables of the environment.
    """
    words = [str(folder), module, *map(str, argv)]
    with TemporaryDirectory() as place:
        streams = [Path(place) / name for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (stdin, "", "")):
            stream.write_text(text, "utf-8")
        process = forked.start(
            "tests.faults.surroundings:bounded", words, {**environment(), **variables}, streams
        )
        process.join()
        output, errors = (stream.read_text("utf-8", "replace") for stream in streams[1:])
    return subprocess.CompletedProcess(words[2:], process.exitcode, output, errors)


def is_refusal(ended: int, errors: str, *words: str, status: int = 2) -> None:
    """Check the exit status of a command, and what it has written to its standard error."""
    assert ended == status, (ended, errors[-3000:])
    assert errors.count("\n") == 1, errors[-3000:]
    assert len(errors) <= LONGEST + 1, errors
    for word in words:
        assert word in errors, errors

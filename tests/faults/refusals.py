"""Refusals: what every command does with a bad input, whatever it is.

The status is 2, there is one line of at most 300 characters, it names the value, what is allowed
and the fix, and no file has changed. A row of a table is a :class:`Bad`; :func:`bad` makes it.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Mapping, Sequence, Tuple

import pytest

from tests import forked
from tests.commands import environment

LONGEST = 300


@dataclass(frozen=True)
class Bad:
    """A bad input.

    Attributes:
        module: the command, as ``python -m`` runs it.
        argv: its arguments; ``{world}`` stands for the folder of the fixture ``world``.
        words: what the line must name.
        files: files in the current folder, by name.
        links: links in the current folder, by name.
        status: 2; 1 of fairseq's commands and of a program that calls the library, which end by a
            ``SystemExit`` of ours.
        how: further arguments of :func:`run`.
    """

    module: str
    argv: Sequence[object]
    words: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    status: int = 2
    how: Mapping[str, Any] = field(default_factory=dict)


def bad(
    name: str,
    module: str,
    argv: Sequence[object],
    *words: str,
    nightly: bool = False,
    **more: Any,
) -> Any:
    """Return a row of a table of refusals.

    Args:
        name: of the test.
        module: as in :class:`Bad`.
        argv: as in :class:`Bad`.
        words: as in :class:`Bad`.
        nightly: whether it takes long.
        more: the other attributes of :class:`Bad`.
    """
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(Bad(module, argv, words, **more), id=name, marks=marks)


def run(
    folder: Path,
    module: str,
    *argv: object,
    stdin: str = "",
    closed: str = "",
    variables: Mapping[str, str] = {},
) -> subprocess.CompletedProcess:
    """Run ``python -m module argv`` in a folder, with bounds of time and memory.

    Args:
        folder: the current folder of the command.
        module: the module.
        argv: its arguments.
        stdin: its input.
        closed: the number of a standard stream that is closed.
        variables: further variables of the environment.
    """
    words = [str(folder), closed, module, *map(str, argv)]
    with TemporaryDirectory() as place:
        streams = [Path(place) / name for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (stdin, "", "")):
            stream.write_text(text, "utf-8")
        process = forked.start(
            "tests.faults.inside", words, {**environment(), **variables}, streams
        )
        process.join()
        output, errors = (stream.read_text("utf-8", "replace") for stream in streams[1:])
    return subprocess.CompletedProcess(words[2:], process.exitcode, output, errors)


def refuses(bad: Bad, world: Path, folder: Path) -> None:
    """Run a command with a bad input in an empty folder, and check its refusal."""
    for name, content in bad.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for name, target in bad.links.items():
        (folder / name).symlink_to(target)
    before = contents(world, folder)
    argv = [str(word).replace("{world}", str(world)) for word in bad.argv]
    done = run(folder, bad.module, *argv, **bad.how)
    errors = done.stdout if bad.how.get("closed") == "2" else done.stderr
    is_refusal(done.returncode, errors, *bad.words, status=bad.status)
    assert contents(world, folder) == before


def is_refusal(ended: int, errors: str, *words: str, status: int = 2) -> None:
    """Check the exit status of a command, and what it has written to its standard error."""
    assert ended == status, (ended, errors[-3000:])
    assert errors.count("\n") == 1, errors[-3000:]
    assert len(errors) <= LONGEST + 1, errors
    for word in words:
        assert word in errors, errors


def contents(*folders: Path) -> Dict[str, Tuple[int, int]]:
    """Return size and time of every file below some folders."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    states = {str(path): os.lstat(path) for path in paths}
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}

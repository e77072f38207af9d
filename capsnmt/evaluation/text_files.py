"""Text files as lists of lines."""

from __future__ import annotations

from pathlib import Path
from typing import List

from capsnmt import lines
from capsnmt.cli import ConfigurationError

STDIN = "-"


def read_lines(path: str) -> List[str]:
    """Read the lines of a UTF-8 file, as `capsnmt.lines.read_lines` does.

    Args:
        path: a file, plain or ``.gz``, or ``-`` for the standard input.

    Raises:
        ConfigurationError: the file is missing, empty, damaged, or not text in UTF-8.
    """
    name = "the standard input" if path == STDIN else path
    read = (
        lines.stream_lines(lines.standard_input(), name)
        if path == STDIN
        else lines.read_lines(Path(path))
    )
    text = list(read)
    if not text:
        raise ConfigurationError(f"{name} is empty: nothing to score")
    return text

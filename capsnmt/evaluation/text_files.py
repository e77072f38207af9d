"""Text files as lists of lines."""

from __future__ import annotations

from pathlib import Path
from typing import List

from capsnmt import lines
from capsnmt.cli import ConfigurationError


def read_lines(path: str) -> List[str]:
    """Read the lines of a UTF-8 file, as `capsnmt.lines.read_lines` does.

    Raises:
        ConfigurationError: the file is missing, empty, damaged, or not text in UTF-8.
    """
    text = list(lines.read_lines(Path(path)))
    if not text:
        raise ConfigurationError(f"{path} is empty: nothing to score")
    return text

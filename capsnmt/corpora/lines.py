"""The lines of corpora: without characters that could shift the two sides against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from capsnmt import lines

# Some programs end a line at these, which would shift one side of a corpus.
FALSE_ENDS = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
BYTES_OF_A_NUL = 100  # a text with more than one NUL in so many bytes is damaged, or UTF-16


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a plain or gzipped text file, as `capsnmt.lines.read_lines` does.

    Any ``\r`` inside a line and Unicode's other line ends become spaces: programs that end a line
    there would shift the two sides of a corpus against each other.

    Raises:
        ConfigurationError: the file cannot be read, or is not text in this encoding.
    """
    return lines.read_lines(path, partial(text_lines, encoding=encoding))


def text_lines(data: bytes, name: str, before: int, encoding: str = "utf-8") -> list[str]:
    """Split ``data`` into lines as `read_lines` does.

    **D**: a stray NUL becomes a space, as the tokenisers make of other control characters; a user
    cannot edit a published corpus.

    Args:
        data: the bytes of some lines.
        name: the name of the file for errors.
        before: number of lines of the file before these.
        encoding: of the text.

    Raises:
        ConfigurationError: they are not text in this encoding.
    """
    if 0 < data.count(b"\0") <= len(data) // BYTES_OF_A_NUL:
        data = data.replace(b"\0", b" ")
    decoded = lines.decode_lines(data, name, before, encoding)
    if any(map(FALSE_ENDS.search, decoded)):
        decoded = [FALSE_ENDS.sub(" ", line) for line in decoded]
    return decoded

"""Text files as lists of lines."""

from __future__ import annotations

import gzip
import sys
import zlib
from typing import List

from capsnmt.errors import ConfigurationError

STDIN = "-"


def read_lines(path: str) -> List[str]:
    r"""Read the lines of a UTF-8 file, without their line ends.

    Only ``\n`` ends a line, as for fairseq and sacreBLEU. A form feed or a Unicode line separator
    is part of its sentence; splitting there would shift every later sentence.

    Args:
        path: a file, plain or ``.gz``, or ``-`` for the standard input.

    Raises:
        ConfigurationError: the file is missing, empty, damaged, or not UTF-8.
    """
    name = "the standard input" if path == STDIN else path
    try:
        content = _read_bytes(path)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file: check the path") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"{path} is not a complete gzip file ({error}): copy it again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    if not content:
        raise ConfigurationError(f"{name} is empty: nothing to score")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{name}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8: convert the file"
        ) from None
    return [line.rstrip("\r") for line in text[: -1 if text.endswith("\n") else None].split("\n")]


def _read_bytes(path: str) -> bytes:
    if path == STDIN:
        return sys.stdin.buffer.read()
    if path.endswith(".gz"):
        with gzip.open(path) as file:
            return file.read()
    with open(path, "rb") as file:
        return file.read()

r"""The lines of text files: references, translations, corpora and tables are all read here.

Only ``\n`` ends a line, as for fairseq and sacreBLEU; a ``\r`` before it is dropped. A form feed or
a Unicode line separator is part of its sentence: splitting there would shift all later sentences. A
byte-order mark at the start of a text is dropped: otherwise it would be part of the first word.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Callable, Iterator, List, cast

from capsnmt.cli import ConfigurationError

BLOCK = 1 << 20  # bytes read at a time


@contextmanager
def one_line_errors(path: Path) -> Iterator[None]:
    """Raise a ``ConfigurationError`` for a text file that cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file: check the path") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"{path}: not a complete gzip file ({error}): fetch or compress it again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, plain or ``.gz``, without their ends."""
    with one_line_errors(path):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as stream:
            yield from stream_lines(cast(BinaryIO, stream), str(path))


def standard_input() -> BinaryIO:
    """Return the standard input; if it is closed, that is a ``ConfigurationError``."""
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed: give the text by < FILE")
    return sys.stdin.buffer


def decode_lines(data: bytes, name: str, before: int = 0, encoding: str = "utf-8") -> List[str]:
    """Decode and split the bytes of some lines.

    Args:
        data: the lines; the last one may lack its end.
        name: the name of the file for errors.
        before: number of lines of the file before these.
        encoding: of the text.
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = before + 1 + data.count(b"\n", 0, error.start)
        place = error.start - 1 - data.rfind(b"\n", 0, error.start)
        wide = before == 0 and data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        raise ConfigurationError(
            f"{name}, line {line}: not {encoding.upper()} ({error.reason} at byte {place}): "
            f"convert the file, e.g. iconv -f {'utf-16' if wide else 'latin1'} -t utf-8, or, of a "
            f"corpus, name its encoding in the recipe"
        ) from None
    if before == 0 and text.startswith("\ufeff"):
        text = text[1:]
    if "\0" in text:
        line = before + 1 + text.count("\n", 0, text.index("\0"))
        raise ConfigurationError(
            f"{name}, line {line}: holds a NUL character, so it is not text, or it is UTF-16: "
            "convert the file"
        )
    lines = (text[:-1] if text.endswith("\n") else text).split("\n")
    return [line.rstrip("\r") for line in lines] if "\r" in text else lines


def stream_lines(
    stream: BinaryIO, name: str, decode: Callable[[bytes, str, int], List[str]] = decode_lines
) -> Iterator[str]:
    """Yield the lines of an open binary stream, as `read_lines` does; ``name`` is for errors."""
    number, rest = 0, b""
    for block in iter(lambda: stream.read(BLOCK), b""):
        head, end, rest = (rest + block).rpartition(b"\n")
        if end:
            lines = decode(head + end, name, number)
            yield from lines
            number += len(lines)
    if rest:
        yield from decode(rest, name, number)


def blank_lines(lines: List[str], name: str) -> int:
    """Count the blank lines of a text; if all are, that is a ``ConfigurationError``."""
    blank = sum(not line.strip() for line in lines)
    if lines and blank == len(lines):
        raise ConfigurationError(f"{name}: all {blank:,} lines are blank: give another file")
    return blank

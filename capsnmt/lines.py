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
from typing import BinaryIO, Callable, Iterator, List, Optional, cast

from capsnmt.cli import ConfigurationError

BLOCK = 1 << 20  # bytes read at a time
# The bytes of some lines, the name of their file, and the number of lines before -> the lines.
Decoder = Callable[[bytes, str, int], List[str]]


@contextmanager
def one_line_errors(path: Path) -> Iterator[None]:
    """Raise a ``ConfigurationError`` for a text file that cannot be read.

    Raises:
        ConfigurationError: the file is missing, not readable, or not a complete gzip file.
    """
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


def read_lines(path: Path, decode: Optional[Decoder] = None) -> Iterator[str]:
    """Yield the lines of a text file, plain or ``.gz``, without their ends.

    Args:
        path: the file.
        decode: a function like `decode_lines`, which is the default.

    Raises:
        ConfigurationError: the file cannot be read, or ``decode`` refuses it.
    """
    with one_line_errors(path):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as stream:
            yield from stream_lines(cast(BinaryIO, stream), str(path), decode)


def standard_input() -> BinaryIO:
    """Return the standard input.

    Raises:
        ConfigurationError: it is closed.
    """
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed: give the text by < FILE")
    return sys.stdin.buffer


def stream_lines(stream: BinaryIO, name: str, decode: Optional[Decoder] = None) -> Iterator[str]:
    """Yield the lines of an open binary stream, as `read_lines` does; ``name`` is for errors."""
    decode = decode or decode_lines
    number, rest = 0, b""
    for block in iter(lambda: stream.read(BLOCK), b""):
        head, end, rest = (rest + block).rpartition(b"\n")
        if end:
            lines = decode(head + end, name, number)
            yield from lines
            number += len(lines)
    if rest:
        yield from decode(rest, name, number)


def decode_lines(data: bytes, name: str, before: int = 0, encoding: str = "utf-8") -> List[str]:
    """Decode and split the bytes of some lines.

    Args:
        data: the lines; the last one may lack its end.
        name: the name of the file for errors.
        before: number of lines of the file before these.
        encoding: of the text.

    Raises:
        ConfigurationError: they are in another encoding, or hold a NUL.
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise _wrong_encoding(data, name, before, encoding) from None
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


def blank_lines(lines: List[str], name: str) -> int:
    """Count the blank lines of a text.

    Raises:
        ConfigurationError: all lines are blank.
    """
    blank = sum(not line.strip() for line in lines)
    if lines and blank == len(lines):
        raise ConfigurationError(f"{name}: all {blank:,} lines are blank: give another file")
    return blank


def _wrong_encoding(data: bytes, name: str, before: int, encoding: str) -> ConfigurationError:
    fault, number = "", before
    for number, line in enumerate(data.split(b"\n"), before + 1):  # noqa: B007
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            fault = f" ({error.reason} at byte {error.start})"
            break
    likely = "utf-16" if before == 0 and data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "latin1"
    return ConfigurationError(
        f"{name}, line {number}: not {encoding.upper()}{fault}: convert the file, e.g. iconv -f "
        f"{likely} -t utf-8, or, of a corpus, name its encoding in the recipe"
    )

r"""The lines of text files: references, translations, corpora and tables are all read here.

Only ``\n`` ends a line, as for fairseq and sacreBLEU; a ``\r`` before it is dropped. A form feed or
a Unicode line separator is part of its sentence: splitting there would shift all later sentences. A
byte-order mark, which has no width, is dropped, also where texts were joined: otherwise it would be
part of a word. A stray NUL becomes a space, because a user cannot edit a published corpus; with one
in its first line a file is UTF-16.
"""

import gzip
import re
import zlib
from pathlib import Path
from typing import BinaryIO, Iterable, Iterator, List, cast

from capsnmt.cli import ConfigurationError

# how a file begins that is no text in UTF-8, and what is said of it
BEGINNINGS = {
    # gzip, bzip2, xz, zstd and zip
    rb"\x1f\x8b|BZh\d1AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd|PK\x03\x04": "it is compressed; unpack it",
    rb"\xff\xfe|\xfe\xff": "not UTF-8; convert the file, as by iconv -f utf-16 -t utf-8",
    rb"(?:[^\r\n]+\r){2}[^\n]*\Z": r"its lines end in \r alone; convert it, as by tr '\r' '\n'",
    rb"[^\n]*\0": "holds a NUL character, so it is UTF-16 or no text; convert the file",
}


def read_lines(path: Path, name: str = "") -> Iterator[str]:
    """Yield the lines of a UTF-8 text file without their ends.

    Errors call it ``name``, by default its path; if that ends in ``.gz``, it is compressed.
    """
    name = name or str(path)
    opener = gzip.open if name.endswith(".gz") else open
    try:
        with opener(path, "rb") as stream:
            yield from stream_lines(cast(BinaryIO, stream), name)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file; check the path") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"{path}: not a complete gzip file ({error}); fetch or compress it again"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None


def stream_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of an open binary stream, as `read_lines` does; ``name`` is for errors."""
    foreign = 0  # lines that are UTF-8 and not ASCII
    for number, data in enumerate(stream, 1):
        for beginning, problem in BEGINNINGS.items() if number == 1 else ():
            if re.match(beginning, data):
                raise ConfigurationError(f"{name}, line 1: {problem}")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            # of a pipe, the writer may wait for an answer
            fix = _repair(stream if stream.seekable() else (), foreign)
            raise ConfigurationError(
                f"{name}, line {number}: not UTF-8 ({error.reason} at byte {error.start}); {fix}"
            ) from None
        foreign += not text.isascii()
        yield text.replace("\ufeff", "").rstrip("\r\n").replace("\0", " ")


def _repair(others: Iterable[bytes], foreign: int) -> str:
    """Return how to repair a text whose line is not UTF-8, by what the others are."""
    wrong = 1
    for line in others:
        try:
            foreign += not line.decode("utf-8").isascii()
        except UnicodeDecodeError:
            wrong += 1
    if foreign:
        return (
            f"correct {'this line' if wrong == 1 else f'the {wrong:,} such lines'}, or drop them "
            f"on both sides; {foreign:,} others are UTF-8, which a conversion would spoil"
        )
    # not latin1, which has a character for every byte: quotes of Windows would be lost unseen
    return "convert the file from its encoding, as by iconv -f cp1252 -t utf-8 if that is Western"


def blank_lines(lines: List[str], name: str) -> int:
    """Count the blank lines of a text; if all are, that is a ``ConfigurationError``."""
    blank = sum(not line.strip() for line in lines)
    if lines and blank == len(lines):
        raise ConfigurationError(f"{name}: all {blank:,} lines are blank; give another file")
    return blank

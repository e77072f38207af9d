"""Lines of text files, plain or gzipped, read as a stream."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from capsnmt.errors import ConfigurationError
from capsnmt.files import BLOCK

# Some programs end a line at these, which would shift one side of a corpus.
FALSE_ENDS = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a plain or gzipped text file, without their ends.

    Only ``\n`` ends a line. A preceding ``\r`` is dropped. Any other ``\r`` and Unicode's other
    line ends become spaces: programs that end a line there would shift the two sides of a corpus
    against each other.

    Raises:
        ConfigurationError: the file is missing, not a complete gzip file, or in another encoding.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            for block in iter(lambda: stream.readlines(BLOCK), []):
                yield from text_lines(b"".join(block), encoding, path, number)
                number += len(block)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ConfigurationError(
            f"{path}: not a complete gzip file ({error}): fetch or compress it again"
        ) from None


def text_lines(data: bytes, encoding: str, path: Path, before: int) -> list[str]:
    """Split ``data`` into lines as `read_lines` does.

    Args:
        data: the bytes of some lines.
        encoding: of the text.
        path: the file they come from, for errors.
        before: number of lines of the file before these.

    Raises:
        ConfigurationError: they are in another encoding.
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise _wrong_encoding(data, encoding, path, before) from None
    if before == 0:
        text = text.removeprefix("\ufeff")
    lines = text.removesuffix("\n").split("\n")
    if FALSE_ENDS.search(text):
        lines = [FALSE_ENDS.sub(" ", line.rstrip("\r")) for line in lines]
    return lines


def _wrong_encoding(data: bytes, encoding: str, path: Path, before: int) -> ConfigurationError:
    fault, number = "", before
    for number, line in enumerate(data.split(b"\n"), before + 1):  # noqa: B007
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            fault = f" ({error.reason} at byte {error.start})"
            break
    return ConfigurationError(
        f"{path}, line {number}: not {encoding.upper()}{fault}: convert the file, e.g. iconv -f "
        f"latin1 -t utf-8, or name its encoding in the recipe"
    )

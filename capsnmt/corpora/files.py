"""Text files: read in a stream with clear errors, written beside and renamed."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from capsnmt.corpora.errors import PreparationError

BLOCK = 1 << 20
# What some programs take for the end of a line: it would shift one side of a corpus.
FALSE_ENDS = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def checksum(path: Path, like: str = "") -> str:
    """Return the SHA-256 of a file, or ``md5:`` and its MD5 if `like` is written so."""
    prefix, algorithm = ("md5:", "md5") if like.startswith("md5:") else ("", "sha256")
    digest = hashlib.new(algorithm)
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return prefix + digest.hexdigest()


def beside(path: Path) -> Path:
    """Return where `path` is written until it is whole."""
    return path.with_name(f"{path.name}.part")


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def publish(part: Path, path: Path) -> None:
    """Put the finished `part` in the place of `path`."""
    if path.is_dir():
        # A folder cannot be replaced in one call; the manifest is what says it is whole.
        shutil.rmtree(path)
    os.replace(part, path)


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yield the lines of a plain or gzipped text file, without their ends.

    Only ``\n`` ends a line. A ``\r`` before it goes too; any other, and the rest of what Unicode
    calls an end of line, becomes a space: programs that end a line there would shift the two
    sides of a corpus against each other.

    Raises:
        PreparationError: the file is missing, not a whole gzip file, or not in that encoding.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            for block in iter(lambda: stream.readlines(BLOCK), []):
                yield from text_lines(b"".join(block), encoding, path, number)
                number += len(block)
    except FileNotFoundError:
        raise PreparationError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise PreparationError(
            f"{path}: not a whole gzip file ({error}): fetch or compress it again"
        ) from None


def text_lines(data: bytes, encoding: str, path: Path, before: int) -> list[str]:
    """Return the lines in `data`, as `read_lines` does: those after the first `before` of `path`.

    Raises:
        PreparationError: they are not in that encoding.
    """
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise _not_in_that_encoding(data, encoding, path, before) from None
    if before == 0:
        text = text.removeprefix("\ufeff")
    lines = text.removesuffix("\n").split("\n")
    if FALSE_ENDS.search(text):
        lines = [FALSE_ENDS.sub(" ", line.rstrip("\r")) for line in lines]
    return lines


def _not_in_that_encoding(data: bytes, encoding: str, path: Path, before: int) -> PreparationError:
    fault, number = "", before
    for number, line in enumerate(data.split(b"\n"), before + 1):  # noqa: B007
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            fault = f" ({error.reason} at byte {error.start})"
            break
    return PreparationError(
        f"{path}, line {number}: not {encoding.upper()}{fault}: convert the file, e.g. iconv -f "
        f"latin1 -t utf-8, or name its encoding in the recipe"
    )


def describe(path: Path) -> dict[str, int | str]:
    """Return size, checksum and, for text, the lines and whitespace-separated tokens of a file."""
    description: dict[str, int | str] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
    if path.suffix in {".bin", ".idx", ".gz", ".whl"}:
        return description
    lines = tokens = 0
    with path.open("rb") as stream:
        for line in stream:
            lines += 1
            tokens += len(line.split())
    return {**description, "lines": lines, "tokens": tokens}

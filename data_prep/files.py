"""Text files: read in a stream with clear errors, written beside and renamed."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

from data_prep.errors import PreparationError

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
    try:
        with opener(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    text = line.decode(encoding)
                except UnicodeDecodeError as error:
                    raise PreparationError(
                        f"{path}, line {number}: not {encoding.upper()} ({error.reason} at byte "
                        f"{error.start}): convert the file, e.g. iconv -f latin1 -t utf-8, or name "
                        f"its encoding in the recipe"
                    ) from None
                if number == 1:
                    text = text.removeprefix("\ufeff")
                yield FALSE_ENDS.sub(" ", text.rstrip("\r\n"))
    except FileNotFoundError:
        raise PreparationError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise PreparationError(
            f"{path}: not a whole gzip file ({error}): fetch or compress it again"
        ) from None


def aligned(
    source: Iterable[str], target: Iterable[str], names: tuple[object, object]
) -> Iterator[tuple[str, str]]:
    """Yield the sentence pairs of two line-aligned streams, called `names`.

    Raises:
        PreparationError: one has more lines than the other.
    """
    both = zip_longest(source, target)
    for whole, (left, right) in enumerate(both):
        if left is None or right is None:
            shorter, longer = names if left is None else names[::-1]
            lines = whole + 1 + sum(1 for _ in both)
            raise PreparationError(
                f"{shorter} has {whole:,} lines but {longer} has {lines:,}: a parallel corpus "
                f"needs one line for each line, so give two files of one version"
            )
        yield left, right


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Yield the sentence pairs of two line-aligned files.

    Raises:
        PreparationError: one file has more lines than the other.
    """
    return aligned(read_lines(source), read_lines(target), (source, target))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    r"""Write `lines` in UTF-8, each ended by ``\n``."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(line)
            stream.write("\n")


def write_pairs(source: Path, target: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Write sentence pairs as two line-aligned files, and return how many there were."""
    count = 0
    with (
        source.open("w", encoding="utf-8", newline="\n") as left,
        target.open("w", encoding="utf-8", newline="\n") as right,
    ):
        for count, (source_line, target_line) in enumerate(pairs, 1):  # noqa: B007
            left.write(f"{source_line}\n")
            right.write(f"{target_line}\n")
    return count


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

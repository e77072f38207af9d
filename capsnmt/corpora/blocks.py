"""Blocks of lines of line-aligned text files, so that several processes share one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.console import watched
from capsnmt.corpora.lines import text_lines
from capsnmt.corpora.parallel import map_items
from capsnmt.files import BLOCK

LINES = 2000  # of a block: about 250 kB, a tenth of a second of tokenisation
Pair = tuple[str, str]
LineFunction = Callable[[str], str]


@dataclass(frozen=True)
class Block:
    """The same lines of several line-aligned files.

    Attributes:
        places: for each file, its path and the first and last byte of the lines.
        before: number of lines before these.
        lines: number of lines.
    """

    places: tuple[tuple[Path, int, int], ...]
    before: int
    lines: int

    def read(self, side: int = 0, encoding: str = "utf-8") -> list[str]:
        """Return the lines of file number ``side``, as `capsnmt.corpora.lines.read_lines` does.

        Raises:
            ConfigurationError: they are not text in this encoding.
        """
        path, begin, end = self.places[side]
        with path.open("rb") as stream:
            stream.seek(begin)
            return text_lines(stream.read(end - begin), str(path), self.before, encoding)


@dataclass(frozen=True)
class Part:
    """The result of processing a block of lines.

    Attributes:
        sides: the bytes to write to each file.
        lines: number of lines it was made from.
        counts: number of lines by outcome.
    """

    sides: tuple[bytes, ...]
    lines: int
    counts: Counter[str] = field(default_factory=Counter)


def _cuts(path: Path) -> tuple[list[int], int]:
    """Return the first byte of each block and the end of the file; and its number of lines."""
    cuts, lines, offset, last = [0], 0, 0, b"\n"
    try:
        with path.open("rb") as stream:
            for data in iter(lambda: stream.read(BLOCK), b""):
                ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
                cuts += (offset + 1 + ends[-(lines + 1) % LINES :: LINES]).tolist()
                lines, offset, last = lines + len(ends), offset + len(data), data[-1:]
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file") from None
    lines += last != b"\n"
    return (cuts if cuts[-1] == offset else [*cuts, offset]), lines


def cut(*paths: Path) -> list[Block]:
    """Return the blocks of line-aligned files.

    Raises:
        ConfigurationError: a file is missing, or one has more lines than another.
    """
    files = [(path, *_cuts(path)) for path in paths]
    (shorter, _, least), (longer, _, most) = (
        choose(files, key=lambda file: file[2]) for choose in (min, max)
    )
    if least < most:
        raise unequal(shorter, least, longer, most)
    borders = zip(*(zip([path] * len(cuts), cuts, cuts[1:]) for path, cuts, _ in files))
    return [
        Block(places, before, min(LINES, most - before))
        for before, places in zip(range(0, most, LINES), borders)
    ]


def unequal(shorter: object, least: int, longer: object, most: int) -> ConfigurationError:
    """Return the error for two sides of a corpus that differ in length."""
    return ConfigurationError(
        f"{shorter} has {least:,} lines but {longer} has {most:,}: a parallel corpus needs as "
        f"many lines on both sides: give two files of one version"
    )


def aligned(
    source: Iterable[str], target: Iterable[str], names: tuple[object, object]
) -> Iterator[Pair]:
    """Yield the sentence pairs of two line-aligned streams.

    Args:
        source: the source sentences.
        target: the target sentences.
        names: what errors call the two.

    Raises:
        ConfigurationError: one has more lines than the other.
    """
    both = zip_longest(source, target)
    for number, (left, right) in enumerate(both):
        if left is None or right is None:
            shorter, longer = names if left is None else names[::-1]
            raise unequal(shorter, number, longer, number + 1 + sum(1 for _ in both))
        yield left, right


def encoded(lines: Iterable[str]) -> bytes:
    r"""Encode lines in UTF-8, each followed by ``\n``."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def in_parts(pairs: Iterable[Pair]) -> Iterator[Part]:
    """Group a stream of sentence pairs into parts."""
    iterator = iter(pairs)
    for some in iter(lambda: list(islice(iterator, LINES)), []):
        sources, targets = zip(*some)
        yield Part((encoded(sources), encoded(targets)), len(some))


def map_blocks(
    make: Callable[..., Callable[[Block], Part]],
    arguments: tuple,
    blocks: Sequence[Block],
    workers: int,
) -> Iterator[Part]:
    """Apply ``make(*arguments)`` to every block, in order; see `map_items`."""
    return map_items(make, arguments, blocks, workers)


def _make_each_line(make: Callable[..., LineFunction], arguments: tuple) -> Callable[[Block], Part]:
    function = make(*arguments)
    return lambda block: Part((encoded(map(function, block.read())),), block.lines)


def map_lines(
    make: Callable[..., LineFunction], arguments: tuple, path: Path, workers: int
) -> Iterator[Part]:
    """Apply ``make(*arguments)`` to every line of a file, in order; see `map_items`."""
    return map_blocks(_make_each_line, (make, arguments), cut(path), workers)


def write_parts(paths: Sequence[Path], parts: Iterable[Part], label: str) -> Part:
    """Write ``parts`` in order, one file for each side, and show the progress.

    Returns:
        the sums of their lines and counts, without the text.
    """
    counts: Counter[str] = Counter()
    lines = 0
    with ExitStack() as stack:
        streams = [stack.enter_context(path.open("wb")) for path in paths]
        for part in watched(parts, label, size=lambda part: part.lines):
            for stream, side in zip(streams, part.sides):
                stream.write(side)
            counts.update(part.counts)
            lines += part.lines
    return Part((), lines, counts)

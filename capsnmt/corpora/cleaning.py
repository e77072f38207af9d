"""Cleaning: which tokenised training pairs are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capsnmt.corpora.blocks import Block, Part, encoded
from capsnmt.corpora.duplicates import entry
from capsnmt.corpora.segmentation import has_long_word


@dataclass(frozen=True)
class Cleaning:
    """The limits of Moses' ``clean-corpus-n.perl``, and two more; for training data only.

    Attributes:
        max_length: maximal number of tokens on either side.
        max_ratio: maximal ratio of the two sides' numbers of tokens.
        max_subwords: maximal number of subwords on either side; 0 for no limit.
        deduplicate: whether pairs that repeat an earlier one, as tokenised, are dropped.
    """

    max_length: int = 250
    max_ratio: float = 9.0
    max_subwords: int = 0
    deduplicate: bool = False

    def fault(self, source: str, target: str) -> str | None:
        """Return the reason to drop a pair, or None."""
        lengths = len(source.split()), len(target.split())
        if not all(lengths):
            return "empty"
        if max(lengths) > self.max_length:
            return "length"
        if max(lengths) > self.max_ratio * min(lengths):
            return "ratio"
        if has_long_word(source) or has_long_word(target):
            return "word"
        return None


def _filtered(block: Block, fault: Callable[[int, str, str], str | None]) -> Part:
    """Return the pairs of a block for which ``fault(line, source, target)`` is None.

    The counts hold the numbers of pairs kept and dropped, by reason.
    """
    sources: list[str] = []
    targets: list[str] = []
    counts: Counter[str] = Counter()
    for line, (source, target) in enumerate(zip(block.read(0), block.read(1)), block.before):
        reason = fault(line, source, target)
        counts[reason or "kept"] += 1
        if reason is None:
            sources.append(source)
            targets.append(target)
    return Part((encoded(sources), encoded(targets)), block.lines, counts)


def make_cleaner(limits: Cleaning, repeated: Path | None) -> Callable[[Block], Part]:
    """Return the function that keeps the pairs of a block within the limits.

    Args:
        limits: the limits.
        repeated: file by `capsnmt.corpora.duplicates.mark_repeated`; None to keep duplicates.
    """
    if repeated is None:
        return lambda block: _filtered(block, lambda line, *pair: limits.fault(*pair))
    marks = np.memmap(repeated, np.bool_, "r")
    return lambda block: _filtered(
        block, lambda line, *pair: limits.fault(*pair) or ("duplicate" if marks[line] else None)
    )


def make_digester(limits: Cleaning) -> Callable[[Block], bytes]:
    """Return the function that makes a `duplicates.entry` of each pair within the limits."""

    def digest(block: Block) -> bytes:
        pairs = enumerate(zip(block.read(0), block.read(1)), block.before)
        return b"".join(entry(line, *pair) for line, pair in pairs if not limits.fault(*pair))

    return digest


def make_limiter(limits: Cleaning) -> Callable[[Block], Part]:
    """Return the function that keeps the segmented pairs within ``limits.max_subwords``."""

    def fault(line: int, source: str, target: str) -> str | None:
        fits = max(len(source.split()), len(target.split())) <= limits.max_subwords
        return None if fits else "subwords"

    return lambda block: _filtered(block, fault)

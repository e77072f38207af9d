"""Which tokenised training pairs are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Pair = tuple[str, str]


@dataclass(frozen=True)
class Cleaning:
    """The limits of moses' ``clean-corpus-n.perl``, and two more; training data only.

    Attributes:
        max_length: tokens on either side.
        max_ratio: tokens of the longer side for each token of the shorter.
        max_subwords: subwords on either side, once segmented; 0 for no limit.
        deduplicate: whether a pair that came before, as tokenised, is dropped.
    """

    max_length: int = 250
    max_ratio: float = 9.0
    max_subwords: int = 0
    deduplicate: bool = False

    def fault(self, source: str, target: str) -> str | None:
        """Return why a pair is dropped, or None."""
        lengths = len(source.split()), len(target.split())
        if not all(lengths):
            return "empty"
        if max(lengths) > self.max_length:
            return "length"
        if max(lengths) > self.max_ratio * min(lengths):
            return "ratio"
        return None

    def kept(self, pairs: Iterable[Pair], counts: Counter[str]) -> Iterator[Pair]:
        """Yield the good pairs; `counts` says how many were kept and dropped, by reason."""
        for pair in pairs:
            fault = self.fault(*pair)
            counts[fault or "kept"] += 1
            if fault is None:
                yield pair

    def kept_subwords(self, pairs: Iterable[Pair], counts: Counter[str]) -> Iterator[Pair]:
        """Yield the segmented pairs within `max_subwords`; `counts` as for `kept`."""
        for source, target in pairs:
            fits = max(len(source.split()), len(target.split())) <= self.max_subwords
            counts["kept" if fits else "subwords"] += 1
            if fits:
                yield source, target

"""Which tokenised training pairs are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Cleaning:
    """The limits of moses' ``clean-corpus-n.perl``; training data only.

    Attributes:
        max_length: tokens on either side.
        max_ratio: tokens of the longer side for each token of the shorter.
    """

    max_length: int = 250
    max_ratio: float = 9.0

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

    def kept(
        self, pairs: Iterable[tuple[str, str]], counts: Counter[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield the good pairs; `counts` says how many were kept and dropped, by reason."""
        for pair in pairs:
            fault = self.fault(*pair)
            counts[fault or "kept"] += 1
            if fault is None:
                yield pair

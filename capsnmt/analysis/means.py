"""Means over all batches."""

from __future__ import annotations

from typing import Dict, Generic, Hashable, Iterator, Tuple, TypeVar

from torch import Tensor

Key = TypeVar("Key", bound=Hashable)


class StreamingMeans(Generic[Key]):
    """Ratios of two sums over all batches, by key and in the order of the first batch.

    The sums are kept on the CPU in fp64, so that their error does not grow with the corpus.
    """

    def __init__(self) -> None:
        self._sums: Dict[Key, Tuple[Tensor, Tensor]] = {}

    def add(self, key: Key, total: Tensor, count: Tensor) -> None:
        """Add the two sums of one batch, of broadcastable shapes."""
        total, count = (x.detach().double().cpu() for x in (total, count))
        if key in self._sums:
            old = self._sums[key]
            total, count = old[0] + total, old[1] + count
        self._sums[key] = total, count

    def __iter__(self) -> Iterator[Key]:
        return iter(self._sums)

    def count(self, key: Key) -> Tensor:
        """Return the sum of the counts."""
        return self._sums[key][1]

    def __getitem__(self, key: Key) -> Tensor:
        """Return total / count; NaN where nothing was counted."""
        total, count = self._sums[key]
        return total / count

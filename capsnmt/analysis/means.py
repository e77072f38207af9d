"""Sums over batches."""

from __future__ import annotations

from typing import Dict, Generic, Hashable, Iterator, List, Tuple, TypeVar

import torch
from torch import Tensor

Key = TypeVar("Key", bound=Hashable)


class Sums(Generic[Key]):
    """Ratios of two sums over all batches, by key and in the order of the first batch.

    Sums are kept on the CPU in fp64, so that their error does not grow with the corpus.
    """

    def __init__(self) -> None:
        self._sums: Dict[Key, Tuple[Tensor, Tensor]] = {}

    def add(self, key: Key, numerator: Tensor, denominator: Tensor) -> None:
        """Add one batch's sums, of broadcastable shapes."""
        numerator, denominator = (x.detach().double().cpu() for x in (numerator, denominator))
        if key in self._sums:
            old = self._sums[key]
            numerator, denominator = old[0] + numerator, old[1] + denominator
        self._sums[key] = numerator, denominator

    def __iter__(self) -> Iterator[Key]:
        return iter(self._sums)

    def count(self, key: Key) -> Tensor:
        """Return the denominator."""
        return self._sums[key][1]

    def ratio(self, key: Key) -> Tensor:
        """Return numerator / denominator; NaN where nothing was added."""
        numerator, denominator = self._sums[key]
        return numerator / denominator

    def ratios(self, key: Key) -> List[float]:
        """Return :meth:`ratio` as a list of numbers."""
        return torch.atleast_1d(self.ratio(key)).tolist()

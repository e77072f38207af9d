"""Disagreement as the paper prints it: explicit sums over pairs of heads, one token at a time."""

from __future__ import annotations

from typing import List, Sequence

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([x * y for x, y in zip(a, b)]).sum()


def disagreement_of_vectors(heads: Sequence[Tensor]) -> Tensor:
    """Li et al. 2021, eq. 5 (values) and 7 (outputs), negated: the H vectors of one token."""
    H = len(heads)
    cosines = [
        dot(heads[i], heads[j]) / (dot(heads[i], heads[i]).sqrt() * dot(heads[j], heads[j]).sqrt())
        for i in range(H)
        for j in range(H)
    ]
    return torch.stack(cosines).sum() / H**2


def disagreement_of_overlaps(heads: Sequence[Tensor]) -> Tensor:
    """Li et al. 2021, eq. 6, negated: the H rows of weights of one query."""
    H = len(heads)
    return torch.stack([dot(heads[i], heads[j]) for i in range(H) for j in range(H)]).sum() / H**2


def term(layers: List[List[Tensor]], real: Tensor, overlaps: bool) -> Tensor:
    """The mean over layers ``[B, H, L, .]`` of the mean over real tokens ``[B, L]``."""
    oracle = disagreement_of_overlaps if overlaps else disagreement_of_vectors
    means = []
    for layer in layers:
        tokens = [
            oracle(layer[b][:, l])
            for b in range(real.size(0))
            for l in range(real.size(1))
            if real[b, l]
        ]
        means.append(torch.stack(tokens).mean())
    return torch.stack(means).mean()

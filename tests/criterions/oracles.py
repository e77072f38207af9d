"""Losses as explicit sums: over pairs of heads, or over words, one token at a time."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

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


def label_smoothed_loss(
    features: List[List[float]],
    weight: List[List[float]],
    target: List[int],
    epsilon: float,
    padding: int,
) -> Tuple[float, float, List[List[float]], List[List[float]]]:
    """fairseq's loss and -log p(y), summed over the tokens, and dL/dh and dL/dW; plain numbers."""
    words, dim = len(weight), len(weight[0])
    eps_i = epsilon / (words - 1)
    loss = likelihood = 0.0
    d_features = [[0.0] * dim for _ in features]
    d_weight = [[0.0] * dim for _ in weight]
    for h, d_h, y in zip(features, d_features, target):
        if y == padding:
            continue
        z = [sum(h[k] * row[k] for k in range(dim)) for row in weight]
        lse = math.log(sum(math.exp(score) for score in z))
        nll, smooth = lse - z[y], words * lse - sum(z)
        likelihood += nll
        loss += (1 - epsilon - eps_i) * nll + eps_i * smooth
        for v, row in enumerate(weight):
            d_z = math.exp(z[v] - lse) - (1 - epsilon - eps_i) * (v == y) - eps_i
            for k in range(dim):
                d_h[k] += d_z * row[k]
                d_weight[v][k] += d_z * h[k]
    return loss, likelihood, d_features, d_weight

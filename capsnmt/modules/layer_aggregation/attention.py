"""Attention over depth: each position weighs the layers by a learned query."""

from __future__ import annotations

from typing import List

import torch
import torch.nn as nn
from torch import Tensor

from .attention_residuals import depth_mixture, depth_scores, stack_values
from .base import SumAggregation, check_count


class DepthAttention(SumAggregation):
    r"""Attention over depth, of the top only: the equation of Attention Residuals, in one place.

    .. math:: \tilde H = \sum_l \alpha_l H^l, \quad
        \alpha_l = \mathrm{softmax}_l(q \cdot \mathrm{RMSNorm}(H^l)), \quad
        \mathrm{RMSNorm}(x) = g \odot x / \sqrt{\mathrm{mean}(x^2) + \epsilon}

    The one-pass control for routing over layers: agreement with a query that all positions share,
    and no iteration. 2 d parameters, q and the gain g. The mechanism of arXiv 2603.15031, in which
    every sublayer reads such a mixture, is :class:`.attention_residuals.AttentionResiduals`.

    **D**: q starts at 0, so that the aggregate starts as the mean of the layers. The gain then has
    no gradient until q has moved.

    **D**: scores, softmax and mixture are computed in fp32 (fp64 for fp64) in every precision,
    because the scores are sums of d products.

    >>> layers = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])]  # L = 2, d = 2
    >>> DepthAttention(2, num_layers=2)(layers).tolist()  # starts as their mean
    [2.0, 2.0]
    """

    def __init__(self, embed_dim: int, num_layers: int) -> None:
        super().__init__(embed_dim, num_layers)
        self.query = nn.Parameter(torch.zeros(embed_dim))
        self.gain = nn.Parameter(torch.ones(embed_dim))

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Return the aggregate ``[..., d]`` of L layers ``[..., d]``."""
        check_count(layers, self.num_layers)
        return depth_mixture(self.query * self.gain, *layers)

    def contributions(self, layers: List[Tensor]) -> Tensor:
        """Return alpha_l H^l of every layer, ``[..., L, d]``."""
        check_count(layers, self.num_layers)
        H = stack_values(layers)
        alpha = depth_scores(self.query * self.gain, H)[0].softmax(-1)
        return alpha.unsqueeze(-1) * H

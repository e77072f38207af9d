"""Pooling of encoder outputs into one vector of fixed size per sentence."""

from __future__ import annotations

import torch
import torch.nn as nn
from torch import Tensor

POOLINGS = ("mean", "queries")


class MeanPooling(nn.Module):
    r"""The mean of the encoder's outputs (Li et al. 2019, section 5.1; Li et al. 2021, 4.2.2).

    .. math:: s = \frac{1}{L} \sum_l h_l

    **D**: l runs over all positions that the encoder sees, including the end-of-sentence symbol,
    and never over padding.

    >>> states, padding = torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[False, True]])
    >>> MeanPooling(1)(states, padding)
    tensor([[2.]])
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.output_dim = embed_dim

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Pool ``states [L, B, d]`` to ``[B, d]``; ``padding [B, L]`` is true at padding."""
        real = ~padding.t().unsqueeze(-1)
        precise = torch.promote_types(states.dtype, torch.float32)
        total = states.masked_fill(~real, 0).sum(0, dtype=precise)
        return (total / real.sum(0)).type_as(states)


class QueryPooling(nn.Module):
    r"""Attention of k trainable queries to the sentence (Li et al. 2021, 4.3.2).

    .. math:: s = [s_1; ..; s_k], \quad s_j = \sum_l \mathrm{softmax}_l(q_j \cdot h_l / \sqrt d) h_l

    **D**: the paper names no projections, so the states themselves are the keys and values.

    Args:
        embed_dim: d.
        num_queries: k.
    """

    def __init__(self, embed_dim: int, num_queries: int) -> None:
        super().__init__()
        self.output_dim = num_queries * embed_dim
        self.queries = nn.Parameter(torch.empty(num_queries, embed_dim))
        nn.init.normal_(self.queries)

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Pool ``states [L, B, d]`` to ``[B, k d]``; ``padding [B, L]`` is true at padding."""
        precise = torch.promote_types(states.dtype, torch.float32)
        scores = torch.einsum("lbd,kd->bkl", states, self.queries) * states.size(-1) ** -0.5
        scores = scores.masked_fill(padding.unsqueeze(1), -torch.inf)
        weights = torch.softmax(scores, dim=-1, dtype=precise).type_as(states)
        return torch.einsum("bkl,lbd->bkd", weights, states).flatten(1)

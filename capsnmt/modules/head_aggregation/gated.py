"""Gated heads: each query scales the output of each head."""

import math

import torch
from torch import Tensor, nn


class HeadGate(nn.Module):
    r"""A sigmoid gate for each head and position (Gated Attention, arXiv 2505.06708; head-wise).

    .. math:: \mathrm{out} = W^O [\sigma(x W_g)_1 O_1, \dots, \sigma(x W_g)_H O_H]

    x is the input of the query projection. d H parameters.

    **D**: :math:`W_g` has no bias: the paper's equation has none.

    **D**: :math:`W_g` starts as further columns of W^Q, of which it is a part in the authors' code:
    uniform with the bound of fairseq's initialisation of W^Q. The gates start around 1/2, at which
    the heads are half as large as the Transformer's.

    Args:
        embed_dim: d, the width of the queries.
        num_heads: the heads of the attention call.

    >>> gate = HeadGate(8, num_heads=2)
    >>> queries, heads = torch.randn(5, 3, 8), torch.randn(3, 2, 5, 4)  # L = 5, B = 3, d_h = 4
    >>> gate(queries, heads).shape
    torch.Size([3, 2, 5, 4])
    >>> bool((gate(queries, heads).abs() <= heads.abs()).all())
    True
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.projection = nn.Linear(embed_dim, num_heads, bias=False)
        bound = math.sqrt(3 / (2 * embed_dim + num_heads))
        nn.init.uniform_(self.projection.weight, -bound, bound)

    def forward(self, query: Tensor, heads: Tensor) -> Tensor:
        """Scale heads ``[B, H, L, d_h]`` by the gates of the queries ``[L, B, d]``."""
        gates = torch.sigmoid(self.projection(query))
        return heads * gates.permute(1, 2, 0).unsqueeze(-1).type_as(heads)

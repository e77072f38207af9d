"""Talking heads: linear maps over the heads, before and after the softmax of attention."""

import torch
from torch import Tensor, nn


class HeadMixing(nn.Module):
    r"""One of the two linear maps of talking-heads attention (Shazeer et al. 2020).

    .. math::
        E'_g = \sum_h P^l_{gh} E_h, \quad A_g = \mathrm{softmax}(E'_g), \quad
        A'_g = \sum_h P^w_{gh} A_h, \quad O_g = A'_g V_g

    E are the scaled dot products. Both maps are modules of this class; each has H^2 parameters.

    **D**: both start as the identity, so that the model starts as the Transformer.

    **D**: the number of heads is the same for queries, scores and values, as in the paper's main
    comparison.

    Args:
        num_heads: H, the heads of the attention call.

    >>> mixing = HeadMixing(2)
    >>> scores = torch.tensor([[[[1.0]], [[10.0]]]])  # [B, H, L, K] = [1, 2, 1, 1]
    >>> with torch.no_grad():
    ...     _ = mixing.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    >>> mixing(scores).flatten().tolist()
    [21.0, 10.0]
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(num_heads))

    def forward(self, x: Tensor) -> Tensor:
        """Mix scores or weights ``[B, H, L, K]`` over the heads."""
        batch, heads = x.shape[:2]
        # one product per sentence: a broadcast matmul would copy x to put the heads last
        weight = self.weight.unsqueeze(0).expand(batch, heads, heads)
        return torch.bmm(weight, x.flatten(2)).view(x.shape)

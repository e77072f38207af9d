"""Transparent attention: a separate mixture of encoder states for each decoder layer."""

from typing import Any, List, Tuple

import torch
from torch import Tensor, nn

from capsnmt.modules.attention import Attention

from .base import check_count, check_positive


class TransparentMixture(nn.Module):
    r"""Transparent attention: a mixture of all encoder states for each decoder layer.

    .. math:: M_j = \sum_{l=0}^{L} \mathrm{softmax}(W_{:,j})_l H^l, \quad j = 1..M

    (Bapna et al. 2018; ampomah2020 section 5.3), H^0 the embedding. W is (L + 1) x M scalars.

    **D**: W starts at 0: every decoder layer starts from the mean of the states.

    Args:
        num_states: L + 1.
        num_decoder_layers: M.

    Raises:
        ValueError: either is below 1; in a call, the number of states is not L + 1.

    >>> mixture = TransparentMixture(num_states=2, num_decoder_layers=3)
    >>> states = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])]  # L + 1 = 2, d = 2
    >>> mixture(states).tolist()  # the mean of the states for each of 3 decoder layers
    [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """

    def __init__(self, num_states: int, num_decoder_layers: int) -> None:
        super().__init__()
        check_positive(num_states=num_states, num_decoder_layers=num_decoder_layers)
        self.weight = nn.Parameter(torch.zeros(num_states, num_decoder_layers))

    def forward(self, states: List[Tensor]) -> Tensor:
        """Mix L + 1 states ``[..., d]``; the j-th block of ``[..., M d]`` is M_j."""
        check_count(states, self.weight.size(0))
        weights = self.weight.softmax(0)
        mixture = torch.einsum("l...d,lj->...jd", [torch.stack(states), weights])
        return mixture.flatten(-2)

    def contributions(self, states: List[Tensor]) -> Tensor:
        """Return each state's summand of each mixture, ``[..., M, L + 1, d]``."""
        check_count(states, self.weight.size(0))
        return torch.einsum("l...d,lj->...jld", torch.stack(states), self.weight.softmax(0))


class BlockAttention(Attention):
    """Encoder-decoder attention of decoder layer j to M_j, one block of the mixtures.

    Args:
        block: index of the block, from 0; its width is ``source_dim``.
        settings: further arguments of :class:`Attention`.

    >>> attention = BlockAttention(8, num_heads=2, block=1)
    >>> mixtures = torch.randn(6, 3, 4 * 8)  # of four decoder layers: [K, B, n d]
    >>> attention(torch.randn(5, 3, 8), mixtures)[0].shape
    torch.Size([5, 3, 8])
    """

    def __init__(self, embed_dim: int, num_heads: int, *, block: int, **settings: Any) -> None:
        super().__init__(embed_dim, num_heads, cross=True, **settings)
        self.block = block

    def sources(self, memory: Tensor) -> Tuple[Tensor, Tensor]:
        """Return one block of the encoder's output ``[K, B, n * source_dim]`` for both."""
        first = self.block * self.source_dim
        return super().sources(memory[..., first : first + self.source_dim])

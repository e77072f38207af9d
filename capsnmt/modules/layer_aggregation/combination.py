"""Combinations of a stack's layers without routing (Dou et al. 2019; Ampomah et al. 2020)."""

from typing import List

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import LayerAggregation, check_count, check_positive, reset_linear


class LinearCombination(LayerAggregation):
    r"""Linear combination of the layers (dou2019 eq 3; ampomah2020 section 5.3).

    .. math:: \tilde H = \sum_l W_l H^l, \quad W_l \in R^{d \times d}

    One matrix product with L d^2 parameters and no bias; ``combine.weight`` is [W_1, .., W_L].

    **D**: eq 3 has W_l in R^d, and Table 1 +14.7M for both sides. W_l is d x d (1.6M per side),
    as the words "parameter matrices" and the count of ampomah2020 (+1.6M) say; 14.7M fits neither
    reading.

    **D**: it starts as the Transformer: W_L is the identity and every other W_l is 0. Their
    gradients are not 0: each is the gradient of the output times H^l.

    >>> layers = list(torch.randn(3, 5, 2, 8))  # L = 3 layers [T, B, d]
    >>> torch.equal(LinearCombination(8, num_layers=3)(layers), layers[-1])  # at the start
    True
    """

    def __init__(self, embed_dim: int, num_layers: int) -> None:
        super().__init__(embed_dim, num_layers)
        self.combine = nn.Linear(num_layers * embed_dim, embed_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set W_L to the identity and the other W_l to 0."""
        nn.init.zeros_(self.combine.weight)
        with torch.no_grad():
            nn.init.eye_(self.combine.weight[:, -self.embed_dim :])

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Aggregate L layers, each ``[..., d]``, to ``[..., d]``."""
        return self.combine(self.concatenate(layers))

    def contributions(self, layers: List[Tensor]) -> Tensor:
        """Return W_l H^l of every layer, ``[..., L, d]``."""
        W = self.combine.weight.unflatten(1, (self.num_layers, self.embed_dim))
        return torch.einsum("...li,oli->...lo", self.split(self.concatenate(layers)), W)


class MergeLayers(nn.Module):
    r"""One step of the iterative combination: :math:`LN(FFN([a; H]) + a + H)`.

    The FFN has the widths 2d, ffn and d.
    """

    def __init__(self, embed_dim: int, ffn_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(2 * embed_dim, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        for linear in (self.fc1, self.fc2):
            reset_linear(linear)

    def forward(self, aggregate: Tensor, layer: Tensor) -> Tensor:
        """Merge one more layer into the aggregate, both ``[..., d]``."""
        hidden = F.relu(self.fc1(torch.cat((aggregate, layer), dim=-1)))
        return self.norm(self.fc2(hidden) + aggregate + layer)


class IterativeCombination(LayerAggregation):
    r"""Iterative combination of the layers, bottom-up (Dou et al. 2018; ampomah2020 section 5.3).

    .. math:: a = H^1; \quad a \leftarrow LN(FFN_l([a; H^l]) + a + H^l), \quad l = 2..L

    Each step has its own FFN (relu) and layer normalisation: (L - 1) (3 d ffn + ffn + 3 d)
    parameters. With one layer there are none, and the aggregate is H^1. The loop over layers is
    sequential: each step needs the previous one.

    **D**: ampomah2020 gives the parts of a step but not their order; the normalisation comes last,
    as in the Transformer's sublayers.

    >>> layers = list(torch.randn(3, 5, 2, 8))  # L = 3 layers [T, B, d]
    >>> IterativeCombination(8, num_layers=3, ffn_dim=16)(layers).shape
    torch.Size([5, 2, 8])
    """

    def __init__(self, embed_dim: int, num_layers: int, ffn_dim: int) -> None:
        super().__init__(embed_dim, num_layers)
        check_positive(ffn_dim=ffn_dim)
        self.merges = nn.ModuleList(MergeLayers(embed_dim, ffn_dim) for _ in range(1, num_layers))

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Aggregate L layers, each ``[..., d]``, to ``[..., d]``."""
        check_count(layers, self.num_layers)
        aggregate = layers[0]
        for number, merge in enumerate(self.merges, start=1):
            aggregate = merge(aggregate, layers[number])
        return aggregate


class DynamicCombination(LayerAggregation):
    r"""Dynamic combination of the layers: the weights depend on the position (dou2019 eq 4).

    .. math:: \tilde H = \sum_l g_l \odot H^l, \quad
        [g_1, .., g_L] = W_2 \, \mathrm{relu}(W_1 [H^1; ..; H^L] + b_1) + b_2

    **D**: one FFN from L d to ffn to L d computes the weights of all layers. No other reading of
    the "distinct feed-forward network" of each layer agrees with the paper's +12.6M per side. The
    weights are not normalised; the paper names no function over them. 2 L d ffn + ffn + L d
    parameters.

    **D**: it starts near the Transformer: b_2 is 1 for the top layer and 0 below. W_2 starts at a
    tenth of the Glorot scale, so that its gradient and that of W_1 are not 0.

    >>> layers = list(torch.randn(3, 5, 2, 8))  # L = 3 layers [T, B, d]
    >>> DynamicCombination(8, num_layers=3, ffn_dim=16)(layers).shape
    torch.Size([5, 2, 8])
    """

    def __init__(self, embed_dim: int, num_layers: int, ffn_dim: int) -> None:
        super().__init__(embed_dim, num_layers)
        check_positive(ffn_dim=ffn_dim)
        self.fc1 = nn.Linear(num_layers * embed_dim, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, num_layers * embed_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start near the output of the top layer."""
        reset_linear(self.fc1)
        reset_linear(self.fc2, gain=0.1)
        with torch.no_grad():
            nn.init.ones_(self.fc2.bias[-self.embed_dim :])

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Aggregate L layers, each ``[..., d]``, to ``[..., d]``."""
        return self.contributions(layers).sum(-2)

    def contributions(self, layers: List[Tensor]) -> Tensor:
        """Return g_l * H^l of every layer, ``[..., L, d]``."""
        concatenated = self.concatenate(layers)
        g = self.fc2(F.relu(self.fc1(concatenated)))
        return self.split(g * concatenated)

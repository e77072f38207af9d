"""Multi-layer multi-head attention (Ampomah et al. 2020): attend to n encoder layers at once."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from capsnmt.modules.attention import Attention, join_heads, split_heads
from capsnmt.modules.block_linear import block_linear

VARIANTS = ("M-00", "M-01", "M-10", "M-11")


class SourceLinear(nn.Linear):
    r"""One linear map per source: :math:`W_i` maps block i of the input to block i of the output.

    The weight stacks the maps, ``[n * out_features, in_features]``, and so does the bias. Each map
    is initialised as ``nn.Linear(in_features, out_features)``, and one source is exactly that. A
    block-diagonal ``nn.Linear`` would store, and multiply by, n times as many numbers.

    Args:
        num_sources: n.
        in_features: input width per source.
        out_features: output width per source.
    """

    def __init__(self, num_sources: int, in_features: int, out_features: int) -> None:
        super().__init__(in_features, num_sources * out_features)
        self.num_sources = num_sources

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., n * in_features]`` to ``[..., n * out_features]``."""
        return block_linear(x, self.weight.unflatten(0, (self.num_sources, -1)), self.bias)


class MultiLayerAttention(Attention):
    r"""Encoder-decoder attention over the outputs f_1..f_n of the top n encoder layers.

    Each source has its own :math:`W^q_i, W^k_i, W^v_i` (ampomah2020 eq 7); for every head

    .. math::
        a_i = Q_i K_i^\top / \sqrt{d_h}, \qquad
        c_i = \begin{cases}
            \mathrm{softmax}(\sum_j a_j) V_i & \text{M-00, M-01} \quad \text{(eq 9, 10)} \\
            \mathrm{softmax}(a_i) V_i        & \text{M-10, M-11} \quad \text{(eq 8)}
        \end{cases}

    and the output is :math:`[c_1; ..; c_n] W^o` (M-00, M-10) or :math:`(\sum_i c_i) W^o` (M-01,
    M-11) (eq 12). With one source it is the Transformer's attention, parameter for parameter.

    For every n it is one scaled-dot-product call. A joint softmax needs :math:`\sum_j a_j`, the dot
    product of the concatenated queries and keys of the sources: H heads of width n d_h. Separate
    softmaxes are n H heads of width d_h, source by source.

    **D**: the joint scores are not divided by n or :math:`\sqrt n`: equation 9 is a plain sum.

    **D**: the sources of M-01 share their weights, so :math:`\sum_i A V_i = A \sum_i V_i`: the
    values are summed in the projection, with one bias, because a sum cannot distinguish several.

    **D**: the projections of each source start as the Transformer's. W^o is an n d x d matrix in
    M-00 and M-10, and stands for one with its d x d block repeated in M-01 and M-11. It starts as
    that matrix: its Xavier fan-in counts every source. The variance of the output then starts at
    2n / (n + 1) times the Transformer's, below 2, in every variant. If W^o started as the
    Transformer's, it would be n times the Transformer's and drown the residual branch.

    Args:
        embed_dim: d, the decoder's width.
        num_heads: H.
        num_sources: n.
        variant: one of ``VARIANTS``.
        settings: further arguments of :class:`Attention`; ``source_dim`` is the encoder's width.

    ``forward`` takes a memory ``[K, B, n * source_dim]``: the concatenated sources, the lowest
    first. The weights that it returns are those of the call: H heads (joint) or n H, source by
    source. ``out_proj`` is a replaceable module; it reads ``out_proj.in_features`` features.

    Raises:
        ValueError: ``variant`` is unknown or ``num_sources`` is below 1.

    >>> attention = MultiLayerAttention(8, num_heads=2, num_sources=3, variant="M-10").eval()
    >>> query, sources = torch.randn(5, 4, 8), torch.randn(6, 4, 3 * 8)  # L = 5, K = 6, B = 4
    >>> output, weights = attention(query, sources, need_weights=True)
    >>> output.shape, weights.shape  # n H = 6 heads
    (torch.Size([5, 4, 8]), torch.Size([4, 6, 5, 6]))
    """

    def __init__(
        self, embed_dim: int, num_heads: int, num_sources: int, variant: str, **settings: Any
    ) -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant {variant!r} is unknown; choose from {', '.join(VARIANTS)}")
        if num_sources < 1:
            raise ValueError(f"num_sources must be at least 1, not {num_sources}")
        super().__init__(embed_dim, num_heads, cross=True, **settings)
        self.num_sources = num_sources
        self.variant = variant
        self.joint_softmax = variant in ("M-00", "M-01")
        if num_sources == 1:  # the projections are the right ones, random numbers included
            return
        d, n = embed_dim, num_sources
        self.q_proj = nn.Linear(d, n * d)
        self.k_proj = SourceLinear(n, self.source_dim, d)
        self.v_proj = (
            nn.Linear(n * self.source_dim, d)
            if variant == "M-01"
            else SourceLinear(n, self.source_dim, d)
        )
        self.out_proj = nn.Linear(d if variant in ("M-01", "M-11") else n * d, d)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the projections of each source as the Transformer's, W^o as decided above.

        The base class also calls it, on the projections of one source.
        """
        d = self.embed_dim
        num_sources = self.q_proj.out_features // d
        projections = self.k_proj, self.v_proj, self.q_proj
        for projection, width in zip(projections, (self.source_dim, self.source_dim, d)):
            for rows in projection.weight.split(d, dim=0):
                for block in rows.split(width, dim=1):
                    nn.init.xavier_uniform_(block, self.projection_gain())
        if isinstance(self.out_proj, nn.Linear):
            fans = self.out_proj.in_features + d
            nn.init.xavier_uniform_(self.out_proj.weight, math.sqrt(fans / (num_sources * d + d)))
            nn.init.zeros_(self.out_proj.bias)

    def call_heads(self) -> int:
        """Return the number of heads of the attention call: H (joint), or n H."""
        return self.num_heads if self.joint_softmax else self.num_sources * self.num_heads

    def memory_dim(self) -> int:
        """Return the width of the concatenated sources."""
        return self.num_sources * self.source_dim

    def split_heads(self, x: Tensor) -> Tensor:
        r"""Split queries or keys ``[L, B, n d]`` to ``[B, H, L, n d_h]`` or ``[B, n H, L, d_h]``.

        The first is the joint softmax: the concatenation makes :math:`\sum_j a_j` (eq 9) one dot
        product.
        """
        if not self.joint_softmax:
            return split_heads(x, self.call_heads())
        by_source = x.unflatten(-1, (self.num_sources, self.num_heads, self.head_dim))
        return by_source.permute(1, 3, 0, 2, 4).flatten(3)

    def split_values(self, x: Tensor) -> Tensor:
        """Split values as :meth:`split_heads`; the sum of M-01, ``[K, B, d]``, by its H heads."""
        return split_heads(x, self.num_heads) if self.variant == "M-01" else self.split_heads(x)

    def join_heads(self, x: Tensor) -> Tensor:
        """Join heads to ``[c_1; ..; c_n]``, ``[L, B, n d]``, or to their sum, ``[L, B, d]``."""
        if self.variant == "M-00":
            by_source = x.unflatten(-1, (self.num_sources, self.head_dim))
            return by_source.permute(2, 0, 3, 1, 4).flatten(2)
        if self.variant == "M-11":
            x = x.unflatten(1, (self.num_sources, self.num_heads)).sum(dim=1)
        return join_heads(x)

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return f"variant={self.variant}, sources={self.num_sources}, heads={self.num_heads}"

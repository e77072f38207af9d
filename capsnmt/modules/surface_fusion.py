"""SurfaceFusion: the words of the source, attended once more, also predict the next word."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.attention import Attention
from capsnmt.routing.numerics import compute_dtype


class PartLinear(nn.Linear):
    """A linear map of ``in_features`` features of its input, from ``start`` on.

    >>> import torch
    >>> PartLinear(4, 3, start=2)(torch.randn(5, 6)).shape
    torch.Size([5, 3])
    """

    def __init__(self, in_features: int, out_features: int, start: int) -> None:
        super().__init__(in_features, out_features)
        self.start = start

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., start + in_features + ..]`` to ``[..., out_features]``."""
        return super().forward(x[..., self.start : self.start + self.in_features])


class SurfaceAttention(Attention):
    r"""Attention of the decoder's output to the source embeddings (Liu et al. 2021, SurfaceFusion).

    .. math::
        s_t = W^O \, \mathrm{softmax}\Bigl(\frac{W^Q h_t \, (W^K H)^\top}{\sqrt d}\Bigr) W^V X

    h is what the output projection reads, H the encoder's output and X the embeddings of the source
    words without their positions. The loss trains neither h nor H through s. There is one head;
    4 (d^2 + d) parameters.

    Args:
        embed_dim: d, the width of h.
        source_dim: the width of H and X.
        settings: further arguments of :class:`Attention`.

    ``forward`` takes a memory ``[K, B, 2 * source_dim]``: H, then X.

    >>> import torch
    >>> attention = SurfaceAttention(8, source_dim=6).eval()
    >>> attention(torch.randn(5, 3, 8), torch.randn(7, 3, 2 * 6))[0].shape  # L = 5, K = 7, B = 3
    torch.Size([5, 3, 8])
    """

    def __init__(self, embed_dim: int, source_dim: int, **settings: Any) -> None:
        super().__init__(embed_dim, 1, source_dim=source_dim, cross=True, **settings)
        self.k_proj = PartLinear(source_dim, embed_dim, start=0)
        self.v_proj = PartLinear(source_dim, embed_dim, start=source_dim)
        self.reset_parameters()


def fused_log_probs(of_target: Tensor, of_source: Tensor, weight: float) -> Tensor:
    r"""Return the scores of the words: hard fusion of two distributions (Liu et al. 2021).

    .. math::
        \log p(y) = \lambda \log \mathrm{softmax}(E h)_y
            + (1 - \lambda) \log \mathrm{softmax}(E s)_y

    The label-smoothed cross-entropy of it is :math:`\lambda` times that of h and
    :math:`1 - \lambda` times that of s.

    **D**: hard fusion, which the authors' published command trains (with :math:`\lambda = 0.8`);
    their soft fusion is softmax(E (h + s)), up to a temperature.

    **D**: as in their code the scores are not normalised again: :math:`\sum_y p(y) \le 1`. With a
    normalisation it would be softmax(E (:math:`\lambda` h + (1 - :math:`\lambda`) s)).

    Args:
        of_target: E h, ``[..., V]``.
        of_source: E s, ``[..., V]``.
        weight: 1 - :math:`\lambda`.
    """
    log_target, log_source = (
        F.log_softmax(scores, dim=-1, dtype=compute_dtype(scores))
        for scores in (of_target, of_source)
    )
    return log_target.lerp(log_source, weight)

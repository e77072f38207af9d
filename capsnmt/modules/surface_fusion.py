"""SurfaceFusion: the words of the source, attended once more, also predict the next word."""

from typing import Any, Tuple

import torch.nn.functional as F
from torch import Tensor

from capsnmt.modules.attention import Attention
from capsnmt.modules.autocast import convert_once
from capsnmt.routing.numerics import compute_dtype


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

    def sources(self, memory: Tensor) -> Tuple[Tensor, Tensor]:
        """Return H for the keys and X for the values."""
        of_keys, of_values = convert_once(memory).chunk(2, dim=-1)
        return of_keys, of_values


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

"""Capsule-routing self-attention (Duan et al. 2020): attention scores refined by routing."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.attention import Attention
from capsnmt.modules.cache import Cache
from capsnmt.routing import horizontal_routing, vertical_routing
from capsnmt.routing.backend import usable_backend
from capsnmt.routing.numerics import compute_dtype, without_autocast

ENCODER_ROUTINGS = ("none", "vertical", "horizontal", "both")
DECODER_ROUTINGS = ("none", "horizontal")


class PreciseLinear(nn.Linear):
    """A linear map in the precision of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` to ``[..., out]``."""
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class CapsuleAttention(Attention):
    r"""Multi-head self-attention with scores refined by routing before the softmax.

    With :math:`e_{l,h} \in \mathbb{R}^K` the scaled dot products of position l in head h, the rows
    of the cube E (duan2020 eq 5), the weights are :math:`\mathrm{softmax}(E')` of

    .. math::
        e'_{l,h} = e_{l,h} + \mathrm{softmax}(\Lambda)_h \, \Omega^{\uparrow}_l
                   + \Omega^{\leftrightarrow}_{l,h}, \qquad
        \Lambda = W^{\uparrow} \Bigl[\sum_l b_{h,l}\Bigr]_h + b^{\uparrow}
        \qquad \text{(section 3.2, eq 10, 11)}

    :math:`\Omega^{\uparrow}, b` is the vertical routing of heads to positions (Algorithm 2),
    :math:`\Omega^{\leftrightarrow}` the horizontal one of the positions t <= l to heads
    (Algorithm 3). Each can be switched on alone. Only the vertical one has parameters: H^2 + H.

    **D**: :math:`W^{\uparrow}` and :math:`b^{\uparrow}` start at 0, so every head has the weight
    1/H. They multiply a sum over the sentence, which is large: with Glorot initialisation, one head
    would start with nearly all the weight, and the gradient would be small.

    **D**: routing runs in fp32 and the cube is rounded once, after both additions: the sums
    overflow fp16 within a thousand positions.

    **D**: the head weights of a sentence count its real positions only. Padding on either side
    neither votes nor receives in either routing.

    **D**: routing is causal where a mask over positions or a cache is given, as in decoders.
    Without one (``full_context_alignment``) position l still receives from t <= l only, but their
    votes cover every key.

    Args:
        embed_dim: d, the model's width.
        num_heads: H.
        vertical: route heads to positions; encoders only.
        horizontal: route positions to heads.
        iterations: T (**D**: 3; the paper does not say).
        backend: the routing backend, see :mod:`capsnmt.routing.backend`.
        dropout: dropout of the attention weights.

    >>> attention = CapsuleAttention(8, num_heads=2, vertical=True).eval()
    >>> output, _ = attention(torch.randn(5, 3, 8))  # L = 5, B = 3
    >>> output.shape
    torch.Size([5, 3, 8])
    >>> decoder = CapsuleAttention(8, num_heads=2, horizontal=True).eval()
    >>> x, cache = torch.randn(5, 3, 8), {}
    >>> future = torch.full((5, 5), float("-inf")).triu(1)
    >>> steps = [decoder(position, cache=cache)[0] for position in x.split(1)]
    >>> torch.allclose(torch.cat(steps), decoder(x, attn_mask=future)[0], atol=1e-5)
    True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        vertical: bool = False,
        horizontal: bool = False,
        iterations: int = 3,
        backend: str = "auto",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout=dropout)
        self.vertical = vertical
        self.horizontal = horizontal
        self.iterations = iterations
        self.backend = backend
        if vertical:
            self.head_weights = PreciseLinear(num_heads, num_heads)
            self.in_fp32 = ("head_weights",)
            nn.init.zeros_(self.head_weights.weight)
            nn.init.zeros_(self.head_weights.bias)

    def scores(
        self,
        e: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
    ) -> Tensor:
        """Return E' for the unmasked E ``[B, H, L, K]``, in the dtype of E.

        Raises:
            ValueError: vertical routing would have to be causal, or horizontal routing to decode
                more than one new position at once.
        """
        decodes, dtype = cache is not None, e.dtype
        real: Optional[Tensor] = None
        if key_padding_mask is not None:
            real = ~key_padding_mask.to(device=e.device, dtype=torch.bool)
        e = e.to(compute_dtype(e))
        routed = e
        if self.vertical:
            if decodes or attn_mask is not None:
                raise ValueError(
                    "vertical routing reads all positions and cannot be causal; use horizontal "
                    "routing or none in a decoder"
                )
            routed = routed + self.vertical_capsules(e, real)
        if self.horizontal:
            rows = e if cache is None else self.append_row(e, cache)
            backend = usable_backend(self.backend, e, self.training)
            causal = attn_mask is not None  # the rows of a cache are causal already
            routed = routed + horizontal_routing(
                rows, self.iterations, real, real, causal, decodes, backend
            )
        return routed.to(dtype)

    def vertical_capsules(self, e: Tensor, real: Optional[Tensor]) -> Tensor:
        """Return softmax(Lambda)_h Omega_l (eq 10, 11), ``[B, H, L, K]``.

        Args:
            e: scores, ``[B, H, L, K]``.
            real: ``[B, L]``, false at padding.
        """
        backend = usable_backend(self.backend, e, self.training)
        omega, b = vertical_routing(e, self.iterations, real, real, backend=backend)
        with without_autocast(e.device):
            Lambda = self.head_weights(b.sum(-1))
        return Lambda.softmax(-1)[:, :, None, None] * omega[:, None]

    def append_row(self, row: Tensor, cache: Cache) -> Tensor:
        """Append the newest score row to the cache; return the rows t <= l, ``[B, H, l+1, l+1]``.

        The partial routing of position l needs the votes of all of them. They are cached with the
        keys, as ``prev_scores``, and reordered with them. Row t is 0 at the keys k > t, which it
        must not see (section 3.4.3).
        """
        if row.size(2) != 1:
            raise ValueError(
                f"horizontal routing decodes one position per step, not {row.size(2)}: feed a "
                f"prefix one position at a time, or without a cache"
            )
        rows, above = row, cache.get("prev_scores")
        if above is not None:
            rows = torch.cat([F.pad(above, (0, 1)), row], dim=2)
        cache["prev_scores"] = rows
        return rows

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return (
            f"vertical={self.vertical}, horizontal={self.horizontal}, iterations={self.iterations}"
        )

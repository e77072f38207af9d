"""The numerical pieces all routing operators share: floors, masks and sums, each in one place."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

VARIANCE_FLOOR = 1e-6
"""Added to every EM variance, before any logarithm or division (**D**).

Added, not clamped: the gradient stays smooth and |d log sigma / d vote| <= 1 / (2 sqrt(floor)) =
500, where votes almost agree; a clamp has a kink there and a dead zone below it. The size is the
rounding of unit votes held in bfloat16 (a step of 2^-8 has variance 2^-16 / 12 = 1.3e-6): below
it a variance would describe the number format and not the votes.
"""

MASS_FLOOR = 1e-9
"""Least sum_i R[i,n] a weighted mean is divided by (**D**).

Clamped, not added, so that a mean of equal votes is exactly that vote. Reached only when every
input activation is (almost) 0 or an output capsule has lost all its votes; its mean is then 0.
"""


class _BoundGradient(torch.autograd.Function):
    """Identity whose gradient is clamped to the fourth root of the dtype's largest number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        bound = torch.finfo(gradient.dtype).max ** 0.25
        return gradient.clamp(-bound, bound)


def bound_gradient(x: Tensor) -> Tensor:
    """Return x; on the way back no element of its gradient passes 4e9 (fp32; fp64: 1e77) (**D**).

    Where output capsules tie, routing is a chaotic map: each iteration multiplies the gradient by
    about |V|, so that at T = 10 and votes of 1e4 the true one, 1e40, is no fp32 number, and the
    inf becomes NaN one operation later. Bounded between iterations it stays finite; what remains
    of a gradient that large is for gradient clipping anyway. The fourth root leaves room for three
    factors of the same size within an iteration.
    """
    return _BoundGradient.apply(x) if x.requires_grad else x


def compute_dtype(votes: Tensor) -> torch.dtype:
    """Return the dtype of the inner arithmetic: fp64 for fp64 votes, else fp32."""
    return torch.promote_types(votes.dtype, torch.float32)


def sum_over_inputs(weights: Tensor, votes: Tensor) -> Tensor:
    """Return sum_i weights[i,n] votes[i,n]: ``[..., I, N], [..., I, N, D] -> [..., N, D]``."""
    return (weights.unsqueeze(-1) * votes).sum(-3)


def sum_over_width(products: Tensor) -> Tensor:
    """Sum ``[..., D]`` over D; at the papers' D = 1 this is a view, not a copy."""
    return products.squeeze(-1) if products.size(-1) == 1 else products.sum(-1)


def uniform_coefficients(votes: Tensor, pair_mask: Optional[Tensor] = None) -> Tensor:
    """Return C before the first iteration, ``[..., I, N]``: 1/N, N counting real capsules only."""
    if pair_mask is None:
        return votes.new_full((), 1.0 / votes.size(-2)).expand(votes.shape[:-1])
    real = pair_mask.expand(votes.shape[:-1]).to(votes.dtype)
    return real / real.sum(-1, keepdim=True).clamp(min=1)


def softmax_over_outputs(b: Tensor, pair_mask: Optional[Tensor] = None) -> Tensor:
    """Return C = softmax over n of ``b [..., I, N]``; masked pairs, also in full rows, get 0."""
    if pair_mask is None:
        return b.softmax(-1)
    masked = ~pair_mask
    # The lowest finite number and not -inf: a fully masked row must not become NaN.
    return b.masked_fill(masked, torch.finfo(b.dtype).min).softmax(-1).masked_fill(masked, 0.0)


def pair_mask_of(input_mask: Optional[Tensor], output_mask: Optional[Tensor]) -> Optional[Tensor]:
    """Combine ``[..., I]`` and ``[..., N]`` (true = real) to a mask broadcasting over I, N."""
    if input_mask is None:
        return None if output_mask is None else output_mask.unsqueeze(-2)
    if output_mask is None:
        return input_mask.unsqueeze(-1)
    return input_mask.unsqueeze(-1) & output_mask.unsqueeze(-2)

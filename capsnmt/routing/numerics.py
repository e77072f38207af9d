"""Numerical pieces shared by all routing operators: floors, masks, sums and the schedule of EM."""

import math
from contextlib import nullcontext
from typing import Any, ContextManager, Optional

import torch
from torch import Tensor

from .tracing import is_traced

VARIANCE_FLOOR = 1e-6
"""Added to every EM variance, before any logarithm or division (**D**).

It is added, not a clamp: where votes almost agree the gradient stays smooth, with
|d log sigma / d vote| <= 1 / (2 sqrt(floor)) = 500, while a clamp has a kink and a dead zone below
it. The value is the rounding error of unit votes in bfloat16 (a step of 2^-8 has variance
2^-16 / 12 = 1.3e-6): a smaller variance would describe the number format, not the votes.
"""

LOG_2PI = math.log(2 * math.pi)

MASS_FLOOR = 1e-9
"""Lower bound of the sum_i R[i,n] that a weighted mean is divided by (**D**).

It is a clamp, so that the mean of equal votes is exactly that vote. It is reached only when every
input activation is (almost) 0 or an output capsule has lost all its votes; the mean is then 0.
"""


class _BoundGradient(torch.autograd.Function):
    """Identity whose gradient is clamped to the fourth root of the dtype's largest number.

    For torch.func, the forward pass knows no context.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        bound = torch.finfo(gradient.dtype).max ** 0.25
        return gradient.clamp(-bound, bound)


class _BoundGradientOfTangents(_BoundGradient):
    """The same for forward differentiation, which torch.compile cannot record."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.view_as(tangent)


def bound_gradient(x: Tensor) -> Tensor:
    """Return x; bound each element of its gradient by 4e9 (fp32; fp64: 1e77) (**D**).

    Where output capsules tie, routing is a chaotic map: each iteration multiplies the gradient by
    about |V|. At T = 10 and votes of 1e4 the true gradient, 1e40, exceeds fp32, and inf becomes NaN
    one operation later. A bound between iterations keeps it finite; gradients this large are left
    to gradient clipping. The fourth root leaves room for three factors of the same size within one
    iteration.
    """
    if not x.requires_grad:
        return x
    return (_BoundGradient if is_traced() else _BoundGradientOfTangents).apply(x)


def compute_dtype(votes: Tensor) -> torch.dtype:
    """Return the dtype of the inner arithmetic: fp64 for fp64 votes, else fp32."""
    return torch.promote_types(votes.dtype, torch.float32)


def rounded(result: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a result in the dtype of the votes; in fp16 logits beyond its range are its largest.

    Votes of 1e4 agree with their capsule by up to 1e4 sqrt(D) in each iteration (**D**).
    """
    if dtype == torch.float16:
        bound = torch.finfo(dtype).max
        result = result.clamp(-bound, bound)
    return result.to(dtype)


def without_autocast(device: torch.device) -> ContextManager[Any]:
    """Return a context without autocast, which not every device has, such as ``meta``."""
    if device.type == "meta":
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def sum_over_inputs(weights: Tensor, votes: Tensor) -> Tensor:
    """Return sum_i weights[i,n] votes[i,n]: ``[..., I, N], [..., I, N, D] -> [..., N, D]``."""
    return (weights.unsqueeze(-1) * votes).sum(-3)


def sum_over_width(products: Tensor) -> Tensor:
    """Sum ``[..., D]`` over D; at the papers' D = 1 the result is a view, not a copy."""
    return products.squeeze(-1) if products.size(-1) == 1 else products.sum(-1)


def uniform_coefficients(votes: Tensor, pair_mask: Optional[Tensor] = None) -> Tensor:
    """Return C before the first iteration, ``[..., I, N]``: 1/N, where N counts real capsules."""
    if pair_mask is None:
        return votes.new_full((), 1.0 / votes.size(-2)).expand(votes.shape[:-1])
    real = pair_mask.expand(votes.shape[:-1]).to(votes.dtype)
    return real / real.sum(-1, keepdim=True).clamp(min=1)


def softmax_over_outputs(b: Tensor, pair_mask: Optional[Tensor] = None) -> Tensor:
    """Return C = softmax over n of ``b [..., I, N]``, 0 at masked pairs and in masked rows."""
    if pair_mask is None:
        return b.softmax(-1)
    masked = ~pair_mask
    # Not -inf but the lowest finite number: a fully masked row must not become NaN.
    return b.masked_fill(masked, torch.finfo(b.dtype).min).softmax(-1).masked_fill(masked, 0.0)


def pair_mask_of(input_mask: Optional[Tensor], output_mask: Optional[Tensor]) -> Optional[Tensor]:
    """Combine masks ``[..., I]`` and ``[..., N]`` (true = real) into one for pairs (I, N)."""
    if input_mask is None:
        return None if output_mask is None else output_mask.unsqueeze(-2)
    if output_mask is None:
        return input_mask.unsqueeze(-1)
    return input_mask.unsqueeze(-1) & output_mask.unsqueeze(-2)


def inverse_temperature(t: int, iterations: int) -> float:
    """Return lam_t, which rises linearly from 1 to min(T, 3) (**D**: as in the released code).

    >>> [inverse_temperature(t, 3) for t in range(3)]
    [1.0, 2.0, 3.0]
    """
    return 1.0 + (min(iterations, 3) - 1) * t / max(1, iterations - 1)

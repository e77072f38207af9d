"""The loop shared by dynamic and simple routing: route, squash, reward agreement."""

from __future__ import annotations

from typing import List, Optional, Tuple

from torch import Tensor

from . import numerics
from .numerics import (
    bound_gradient,
    softmax_over_outputs,
    sum_over_inputs,
    sum_over_width,
    uniform_coefficients,
)
from .squash import squash


def agreement(capsules: Tensor, votes: Tensor) -> Tensor:
    """Return out[n] . V[i,n]: ``[..., N, D], [..., I, N, D] -> [..., I, N]``."""
    return sum_over_width(capsules.unsqueeze(-3) * votes)


def output_capsules(
    C: Tensor, votes: Tensor, normalise: bool, trace: Optional[List[Tensor]]
) -> Tensor:
    """Return squash(S[n]) ``[..., N, D]``, S the sum or mean of the votes, and record C."""
    if trace is not None:
        trace.append(C.detach())
    S = sum_over_inputs(C, votes)
    if normalise:
        S = S / C.sum(-2).clamp(min=numerics.MASS_FLOOR).unsqueeze(-1)
    return squash(S)


def route_by_agreement(
    votes: Tensor,
    iterations: int,
    normalise: bool,
    pair_mask: Optional[Tensor] = None,
    trace: Optional[List[Tensor]] = None,
) -> Tuple[Tensor, Tensor]:
    """Iterate li2019 Algorithm 1 = dou2019 Algorithm 1 = duan2020 Algorithm 1.

    Args:
        votes: V, ``[..., I, N, D]``.
        iterations: T.
        normalise: divide S[n] by sum_i C[i,n] (li2019 eq 7) or not (duan2020 eq 7).
        pair_mask: true where input i may vote for output n, broadcasts to ``[..., I, N]``.
        trace: a list to which C of each iteration is appended.

    Returns:
        Output capsules ``[..., N, D]`` and their routing logits ``[..., I, N]``: b before its last
        update, which only dynamic routing needs.
    """
    b = votes.new_zeros(()).expand(votes.shape[:-1])
    out = output_capsules(uniform_coefficients(votes, pair_mask), votes, normalise, trace)
    for _ in range(iterations - 1):
        b = b + agreement(out, votes)
        C = bound_gradient(softmax_over_outputs(b, pair_mask))
        out = output_capsules(C, votes, normalise, trace)
    return out, b

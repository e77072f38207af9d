"""The loop shared by dynamic and simple routing: route, squash, reward agreement."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor

from . import numerics
from .checks import check_floating
from .numerics import (
    bound_gradient,
    compute_dtype,
    softmax_over_outputs,
    sum_over_inputs,
    sum_over_width,
    uniform_coefficients,
)


def squash(s: Tensor) -> Tensor:
    """Shrink vectors to a length below 1 without changing their direction.

    ``squash(s) = |s|^2 / (1 + |s|^2) * s / |s|`` (li2019 eq 8, dou2019 eq 5, duan2020 eq 6).

    The smallest normal number is added under the root: ``squash(0) = 0`` with gradient 0. It is
    below the rounding error of every other value.

    Args:
        s: ``[..., D]``, any floating dtype.

    Returns:
        ``[..., D]``, same dtype, each vector shorter than 1.

    Raises:
        ValueError: the dtype is not floating.

    >>> squash(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))  # |s| = 5: 25 / 26 * (0.6, 0.8)
    tensor([[0.5769, 0.7692],
            [0.0000, 0.0000]])
    """
    check_floating("s", s)
    wide = s.to(compute_dtype(s))
    squared_length = (wide * wide).sum(-1, keepdim=True)
    length = (squared_length + torch.finfo(wide.dtype).tiny).sqrt()
    return (wide * (length / (1 + squared_length))).to(s.dtype)


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

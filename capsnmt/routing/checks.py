"""One clear line for every argument an operator cannot work with."""

from __future__ import annotations

import math
from typing import Optional

from torch import Tensor


def check_iterations(iterations: int) -> None:
    """Raise unless T is a whole number of at least 1."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"routing iterations must be a whole number >= 1, not {iterations!r}")


def check_votes(votes: Tensor, axes: str = "[..., I, N, D]") -> None:
    """Raise unless the votes (or scores) are a floating tensor with the named, non-empty axes."""
    named = len(axes.split(",")) - axes.count("...")
    exact = "..." not in axes
    if votes.dim() < named or (exact and votes.dim() != named) or 0 in votes.shape[-3:]:
        raise ValueError(f"routing needs {axes} with no empty axis, not {list(votes.shape)}")
    if not votes.is_floating_point():
        raise ValueError(
            f"routing needs a floating dtype, not {votes.dtype}; convert with .float()"
        )


def check_betas(votes: Tensor, beta_a: Tensor, beta_u: Tensor) -> None:
    """Raise unless both costs hold one number an output capsule."""
    capsules = votes.size(-2)
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        if tuple(beta.shape) != (capsules,):
            raise ValueError(
                f"{name} must be [N] = [{capsules}], one an output capsule of the votes, "
                f"not {list(beta.shape)}"
            )


def check_activation(votes: Tensor, activation: Optional[Tensor]) -> Optional[Tensor]:
    """Return the activation flat, ``[tokens, I, 1]`` or ``[tokens, I, N]``; raise on other shapes."""
    if activation is None:
        return None
    per_input, per_pair = votes.shape[:-2], votes.shape[:-1]
    if activation.shape == per_input:
        activation = activation.unsqueeze(-1)
    elif activation.shape != per_pair:
        raise ValueError(
            f"input_activation must be [..., I] = {list(per_input)} or [..., I, N] = "
            f"{list(per_pair)} for these votes, not {list(activation.shape)}"
        )
    return activation.reshape(math.prod(votes.shape[:-3]), *activation.shape[-2:])


def flatten_votes(votes: Tensor) -> Tensor:
    """Return ``[tokens, I, N, D]``: one rank for every caller, so one compiled kernel serves all."""
    return votes.reshape(math.prod(votes.shape[:-3]), *votes.shape[-3:])

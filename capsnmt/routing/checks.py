"""Checks of the operators' arguments."""

import math
from typing import Optional, Sequence

import torch
from torch import Tensor


def check_iterations(iterations: int) -> None:
    """Raise unless T is a whole number of at least 1."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"routing iterations must be a whole number >= 1, not {iterations!r}")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise unless the dtype is floating."""
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must have a floating dtype, not {tensor.dtype}; use .float()")


def check_votes(votes: Tensor) -> None:
    """Raise unless the votes are a floating ``[..., I, N, D]``, I, N, D >= 1."""
    if votes.dim() < 3 or 0 in votes.shape[-3:]:
        raise ValueError(f"votes must be [..., I, N, D], I, N, D >= 1, not {list(votes.shape)}")
    check_floating("votes", votes)


def check_mask(name: str, mask: Optional[Tensor], shape: Sequence[int], axes: str) -> None:
    """Raise unless the mask is None or a boolean (true = real) of this shape."""
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} must be boolean, true = real, not {mask.dtype}; use .bool()")
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} must be {axes} = {list(shape)} here, not {list(mask.shape)}")


def check_scores(scores: Tensor, query_mask: Optional[Tensor], key_mask: Optional[Tensor]) -> None:
    """Raise unless scores are a floating ``[B, H, L, K]``, H, L, K >= 1, which the masks fit."""
    if scores.dim() != 4 or 0 in scores.shape[1:]:
        raise ValueError(f"scores must be [B, H, L, K], H, L, K >= 1, not {list(scores.shape)}")
    check_floating("scores", scores)
    batch, _, queries, keys = scores.shape
    check_mask("query_mask", query_mask, (batch, queries), "[B, L]")
    check_mask("key_mask", key_mask, (batch, keys), "[B, K]")


def check_betas(votes: Tensor, beta_a: Tensor, beta_u: Tensor) -> None:
    """Raise unless both costs hold one floating number per output capsule."""
    capsules = votes.size(-2)
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        if tuple(beta.shape) != (capsules,):
            raise ValueError(f"{name} must be [N] = [{capsules}] here, not {list(beta.shape)}")
        check_floating(name, beta)


def check_variance_floor(variance_floor: float) -> None:
    """Raise unless the floor is above 0: variances are divided by and their logarithm is taken."""
    if not 0 < variance_floor < math.inf:
        raise ValueError(f"variance_floor must be a number above 0, not {variance_floor!r}")


def check_activation(votes: Tensor, activation: Optional[Tensor]) -> Optional[Tensor]:
    """Return ``[..., I]`` as ``[..., I, 1]``, ``[..., I, N]`` unchanged; raise on other shapes."""
    if activation is None:
        return None
    check_floating("input_activation", activation)
    per_input, per_pair = votes.shape[:-2], votes.shape[:-1]
    if activation.shape == per_input:
        return activation.unsqueeze(-1)
    if activation.shape != per_pair:
        raise ValueError(
            f"input_activation must be [..., I] = {list(per_input)} or [..., I, N] = "
            f"{list(per_pair)} here, not {list(activation.shape)}"
        )
    return activation

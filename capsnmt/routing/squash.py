"""The squashing nonlinearity of dynamic and simple routing."""

from __future__ import annotations

import torch
from torch import Tensor

from .numerics import compute_dtype


def squash(s: Tensor) -> Tensor:
    """Shrink vectors to a length below 1 without changing their direction.

    ``squash(s) = |s|^2 / (1 + |s|^2) * s / |s|`` (li2019 eq 8, dou2019 eq 5, duan2020 eq 6).

    The smallest normal number is added under the root: ``squash(0) = 0`` with gradient 0. It is
    below the rounding error of every other value.

    Args:
        s: ``[..., D]``, any floating dtype.

    Returns:
        ``[..., D]``, same dtype, each vector shorter than 1.

    >>> squash(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))  # |s| = 5: 25 / 26 * (0.6, 0.8)
    tensor([[0.5769, 0.7692],
            [0.0000, 0.0000]])
    """
    wide = s.to(compute_dtype(s))
    squared_length = (wide * wide).sum(-1, keepdim=True)
    length = (squared_length + torch.finfo(wide.dtype).tiny).sqrt()
    return (wide * (length / (1 + squared_length))).to(s.dtype)

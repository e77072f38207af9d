"""The numerical decisions all routing operators share: floors and precision, each in one place."""

from __future__ import annotations

import torch
from torch import Tensor

VARIANCE_FLOOR = 1e-6
"""Added to every EM variance, before any logarithm or division (**D**).

Added, not clamped: the gradient stays smooth and |d log sigma / d vote| <= 1 / (2 sqrt(floor)),
500, where votes almost agree; a clamp has a kink there and a dead zone below it. The size is the
rounding of unit votes held in bfloat16 (a step of 2^-8 has variance 2^-16 / 12 = 1.3e-6): below
it a variance would describe the number format and not the votes.
"""

MASS_FLOOR = 1e-9
"""Least r[n] = sum_i R[i,n] a weighted mean is divided by (**D**).

Clamped, not added, so that a mean of equal votes is exactly that vote. Reached only when every
input activation is (almost) 0 or an output capsule has lost all its votes; its mean is then 0.
"""


def compute_dtype(votes: Tensor) -> torch.dtype:
    """Return the dtype of the inner arithmetic: fp64 for fp64 votes, else fp32."""
    return torch.float64 if votes.dtype == torch.float64 else torch.float32


def sum_over_width(products: Tensor) -> Tensor:
    """Sum ``[..., D]`` over D; at the papers' D = 1 this is a view, not a copy."""
    return products.squeeze(-1) if products.size(-1) == 1 else products.sum(-1)

"""Fused routing: one Triton kernel per direction reads the votes once and writes its result once.

One program routes one token. Its votes, I x N x D, are a tile in registers, on which all iterations
run in fp32. **D**: nothing is stored for the backward pass but the inputs. The backward kernel
routes again up to each iteration, from the last to the first; O(T^2) arithmetic on the tile costs
less than memory traffic.

This file imports torch only. Triton is imported by the first fused call.
"""

from __future__ import annotations

import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

MAXIMUM_TILE = 2**15
"""Most votes of a token, padded, for which a fused kernel is used: more do not fit in registers."""

ELEMENTS_PER_WARP = 512
"""Votes of a warp, 16 a thread. The assembler's counts for sm_90, T = 3, bf16: at 8 x 512 the EM
kernels use 105 registers forward and 248 backward, and spill none; with twice the votes a thread
the backward kernel spills 292 bytes. Not measured on a GPU yet."""

MAXIMUM_WARPS = 32


def padded(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


def fits(votes: Tensor) -> bool:
    """Return whether the fused kernels route these votes: neither fp64 nor large tiles."""
    tile = math.prod(padded(size) for size in votes.shape[1:])
    return votes.dtype != torch.float64 and tile <= MAXIMUM_TILE


def em_routing(*inputs: Optional[Tensor], **options: Any) -> Tensor:
    """Compute ``em_kernel``."""
    from .autograd import FusedRouting
    from .em import forward
    from .em_backward import backward

    return FusedRouting.apply(forward, backward, options, *inputs)


def simple_routing(votes: Tensor, **options: Any) -> Tensor:
    """Compute ``simple_kernel``."""
    from .agreement import SIMPLE
    from .autograd import FusedRouting

    return FusedRouting.apply(SIMPLE.forward, SIMPLE.backward, options, votes)


def inverted_routing(votes: Tensor, **options: Any) -> Tensor:
    """Compute ``inverted_kernel``."""
    from .agreement import INVERTED
    from .autograd import FusedRouting

    return FusedRouting.apply(INVERTED.forward, INVERTED.backward, options, votes)


def dynamic_routing(*inputs: Optional[Tensor], **options: Any) -> Tuple[Tensor, Tensor]:
    """Compute ``dynamic_kernel``."""
    from .agreement import DYNAMIC
    from .autograd import FusedRouting

    return FusedRouting.apply(DYNAMIC.forward, DYNAMIC.backward, options, *inputs)


def vertical_routing(*inputs: Optional[Tensor], **options: Any) -> Tuple[Tensor, Tensor]:
    """Compute ``vertical_kernel``."""
    from .agreement import VERTICAL
    from .autograd import FusedRouting

    return FusedRouting.apply(VERTICAL.forward, VERTICAL.backward, options, *inputs)

"""Fused routing: one Triton kernel per direction reads the votes once and writes its result once.

One program routes one token. Its votes, I x N x D, are a tile in registers, on which all iterations
run in fp32. **D**: nothing is stored for the backward pass but the inputs. The backward kernel
routes again up to each iteration, from the last to the first, in O(T^2) arithmetic on the tile.

This file imports torch only. Triton is imported by the first fused call.
"""

from __future__ import annotations

import importlib
import math
from typing import Any, List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from capsnmt.routing.backend import explained

Tensors = Sequence[Optional[Tensor]]

MAXIMUM_TILE = 2**15
"""Most votes of a token, padded, for which a fused kernel is used: more do not fit in registers."""


def threads_of(tile: int) -> int:
    """Return the threads of a program for a padded tile.

    A thread has 16 votes, and spills no register on sm_80 to sm_100. Of 2^14 votes and more it has
    32, and the gradients spill: four such tiles in fp32 are all registers of a multiprocessor.
    """
    return min(tile // 16, max(tile // 32, 512))


def padded(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


def fits(votes: Tensor) -> bool:
    """Return whether the fused kernels route these votes: neither fp64 nor large tiles."""
    tile = math.prod(padded(size) for size in votes.shape[1:])
    return votes.dtype != torch.float64 and tile <= MAXIMUM_TILE


class FusedKernel(NamedTuple):
    """A forward and a backward kernel in a module of this package, which imports Triton."""

    kernel: str
    module: str
    launcher: str

    def launch(self) -> Any:
        """Return the object whose methods ``forward`` and ``backward`` launch the kernels."""
        return getattr(importlib.import_module(f".{self.module}", __package__), self.launcher)

    def forward(self, *inputs: Optional[Tensor], **options: Any) -> Any:
        """Return the operator's results."""
        with explained("triton", self.kernel), torch.cuda.device_of(inputs[0]):
            return self.launch().forward(*contiguous(inputs), **options)

    def backward(self, g_results: Tensors, *inputs: Optional[Tensor], **options: Any) -> Tensors:
        """Return the gradients of the inputs."""
        with explained("triton", "the gradient"), torch.cuda.device_of(inputs[0]):
            gradients: Tensors = self.launch().backward(
                contiguous(g_results), *contiguous(inputs), **options
            )
        return gradients


KERNELS = {
    "em_routing": FusedKernel("em_kernel", "em", "EM"),
    "simple_routing": FusedKernel("simple_kernel", "agreement", "SIMPLE"),
    "inverted_routing": FusedKernel("inverted_kernel", "agreement", "INVERTED"),
    "dynamic_routing": FusedKernel("dynamic_kernel", "agreement", "DYNAMIC"),
    "vertical_routing": FusedKernel("vertical_kernel", "agreement", "VERTICAL"),
}


def contiguous(tensors: Tensors) -> List[Optional[Tensor]]:
    """Return the tensors as the kernels address them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]

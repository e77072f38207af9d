"""Routing on a GPU: a Triton kernel a direction reads the votes once and writes its result once.

One program routes one token. Its votes, I x N x D, are a tile in registers, on which all iterations
run in fp32; in vertical routing it reads those of a head at a time, from the cache. **D**: nothing
is stored for the backward pass but the inputs. The backward kernel routes again: once, and what the
iterations need is kept in the cache, or, in the agreement kernels, up to each iteration, from the
last to the first, in O(T^2) arithmetic on the tile.

The limit is the rate of instructions, not memory. As Triton 3.6 to 3.9 build them for sm_90, in
bf16 and at T = 3, EM routing of heads takes at best 3.9 times the memory's time forward and 4.8
backward, the others 3.1 and 3.7. *Reckoned* from the instructions: no GPU has measured it yet.

This file imports torch only. Triton is imported by the first call.
"""

import functools
import importlib
import importlib.util
import math
import os
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from capsnmt.routing import dynamic, em, inverted, simple, vertical
from capsnmt.routing.backend import Tensors, explained
from capsnmt.routing.operator import Operator

OLDEST_TRITON = "3.3"
INTERPRETER_FLAG = "TRITON_INTERPRET"  # Triton's own: kernels run as numpy code, on a CPU
MAXIMUM_TILE = 2**15
"""Most votes of a token, padded, for which a kernel is used: more do not fit in registers."""


def threads_of(tile: int) -> int:
    """Return the threads of a program for a padded tile.

    A thread has 16 votes, and of 2^14 votes and more 32: four such tiles in fp32 are all registers
    of a multiprocessor, so that the gradients read votes again in place of keeping them.
    """
    return min(tile // 16, max(tile // 32, 512))


def padded(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


def interprets() -> bool:
    """Return whether Triton's interpreter runs the kernels."""
    return os.environ.get(INTERPRETER_FLAG, "0") not in ("", "0")


@functools.cache
def triton_obstacle(device_type: str) -> Optional[str]:
    """Return why Triton kernels cannot run here on this device type, None if they can."""
    if importlib.util.find_spec("triton") is None:
        return f"needs triton >= {OLDEST_TRITON}, and it is not installed"
    version = importlib.import_module("triton").__version__
    if TorchVersion(version) < OLDEST_TRITON:
        return f"needs triton >= {OLDEST_TRITON}, and this is {version}"
    if device_type != "cuda" and not (device_type == "cpu" and interprets()):
        return f"needs a GPU, not device type {device_type}"
    return None


@dataclass(frozen=True)
class TritonKernel:
    """A forward and a backward kernel in a module of this package, which imports Triton."""

    kernel: str
    module: str
    launcher: str = ""
    backend: str = "triton"

    def routes(self, device_type: str, dtype: torch.dtype, shape: Sequence[int]) -> bool:
        """Return whether it routes such votes: neither fp64 nor a large tile."""
        return dtype != torch.float64 and math.prod(map(padded, shape)) <= MAXIMUM_TILE

    def obstacle(self, device_type: str) -> Optional[str]:
        """Return why it cannot run here on this device type, None if it can."""
        return triton_obstacle(device_type)

    def launch(self) -> Any:
        """Return what has ``forward`` and ``backward``, which launch the kernels: the module."""
        module = importlib.import_module(f".{self.module}", __package__)
        return getattr(module, self.launcher) if self.launcher else module

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


KERNELS: Sequence[Tuple[Operator, TritonKernel]] = (
    (em.OPERATOR, TritonKernel("em_kernel", "em")),
    (simple.OPERATOR, TritonKernel("simple_kernel", "agreement", "SIMPLE")),
    (inverted.OPERATOR, TritonKernel("inverted_kernel", "agreement", "INVERTED")),
    (dynamic.OPERATOR, TritonKernel("dynamic_kernel", "agreement", "DYNAMIC")),
    (vertical.OPERATOR, TritonKernel("vertical_kernel", "vertical")),
)


def contiguous(tensors: Tensors) -> List[Optional[Tensor]]:
    """Return the tensors as the kernels address them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]

"""The fused kernels as differentiable functions."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..fallback import explained

Tensors = Sequence[Optional[Tensor]]


class FusedRouting(torch.autograd.Function):
    """A forward kernel and its backward kernel, which keep the inputs only."""

    @staticmethod
    def forward(
        ctx: Any,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        options: Dict[str, Any],
        *inputs: Optional[Tensor],
    ) -> Any:
        """Run ``forward(*inputs, **options)``."""
        ctx.backward_kernel, ctx.options = backward, options
        ctx.set_materialize_grads(False)
        inputs = tuple(contiguous(inputs))
        ctx.save_for_backward(*inputs)
        with device_of(inputs):
            return forward(*inputs, **options)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *g_results: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        """Run ``backward(g_results, *inputs, **options)``."""
        inputs = ctx.saved_tensors
        if all(gradient is None for gradient in g_results):
            return (None,) * (3 + len(inputs))
        with explained("triton", "the gradient"), device_of(inputs):
            gradients = ctx.backward_kernel(contiguous(g_results), *inputs, **ctx.options)
        return (None, None, None, *gradients)


def contiguous(tensors: Tensors) -> List[Optional[Tensor]]:
    """Return the tensors as the kernels address them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def device_of(tensors: Tensors) -> torch.cuda.device_of:
    """Return a context in which Triton launches on the GPU of the first tensor."""
    return torch.cuda.device_of(tensors[0])

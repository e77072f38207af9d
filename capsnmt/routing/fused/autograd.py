"""The fused kernels as differentiable functions."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..fallback import Attempt, Kernel

Tensors = Sequence[Optional[Tensor]]


class FusedRouting(torch.autograd.Function):
    """A forward kernel and its backward kernel, which keep the inputs only."""

    @staticmethod
    def forward(
        ctx: Any,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        attempt: Attempt,
        options: Dict[str, Any],
        *inputs: Optional[Tensor],
    ) -> Any:
        """Run ``forward(*inputs, **options)``."""
        ctx.backward_kernel, ctx.attempt, ctx.options = backward, attempt, options
        ctx.set_materialize_grads(False)
        inputs = tuple(contiguous(inputs))
        ctx.save_for_backward(*inputs)
        with device_of(inputs):
            return forward(*inputs, **options)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *g_results: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        """Run ``backward(g_results, *inputs, **options)``; if it cannot be built, eager code."""
        inputs = ctx.saved_tensors
        if all(gradient is None for gradient in g_results):
            return (None,) * (4 + len(inputs))

        def fused() -> Tensors:
            with device_of(inputs):
                return ctx.backward_kernel(contiguous(g_results), *inputs, **ctx.options)

        def eager() -> Tensors:
            return eager_gradients(ctx.attempt.kernel, g_results, inputs, ctx.options)

        return (None, None, None, None, *ctx.attempt(fused, eager))


def contiguous(tensors: Tensors) -> List[Optional[Tensor]]:
    """Return the tensors as the kernels address them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def device_of(tensors: Tensors) -> torch.cuda.device_of:
    """Return a context in which Triton launches on the GPU of the first tensor."""
    return torch.cuda.device_of(tensors[0])


def eager_gradients(
    kernel: Kernel, g_results: Tensors, inputs: Tensors, options: Dict[str, Any]
) -> Tensors:
    """Compute the gradients of the floating inputs by the eager kernel."""
    leaves = [
        tensor if tensor is None else tensor.detach().requires_grad_(tensor.is_floating_point())
        for tensor in inputs
    ]
    with torch.enable_grad():
        results = kernel(*leaves, **options)
    results = results if isinstance(results, tuple) else (results,)
    differentiable = [leaf is not None and leaf.requires_grad for leaf in leaves]
    used = [(result, g) for result, g in zip(results, g_results) if g is not None]
    gradients = iter(
        torch.autograd.grad(
            [result for result, _ in used],
            [leaf for leaf, differs in zip(leaves, differentiable) if differs],
            [g for _, g in used],
        )
    )
    return [next(gradients) if differs else None for differs in differentiable]

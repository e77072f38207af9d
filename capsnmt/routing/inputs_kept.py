"""Functions that keep their inputs, and nothing else, for the backward pass."""

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .backend import Function, Tensors
from .tracing import is_followed


def keep_inputs(
    forward: Function,
    inputs: Tensors,
    options: Dict[str, Any],
    backward: Optional[Function] = None,
    again: Optional[Function] = None,
) -> Any:
    """Return ``forward(*inputs, **options)``, of which autograd keeps the inputs only.

    A compiled graph decides itself what it keeps.

    Args:
        forward: it returns a tensor or a tuple.
        inputs: its tensors.
        options: its keyword arguments.
        backward: ``backward(g_results, *inputs, **options)`` returns the gradients of the inputs;
            None: ``forward`` runs again, with autograd.
        again: what runs with autograd in its place, as for second derivatives.
    """
    needed = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    if needed and not is_followed(inputs):
        return InputsKept.apply(forward, backward, again or forward, options, *inputs)
    return forward(*inputs, **options)


class InputsKept(torch.autograd.Function):
    """See :func:`keep_inputs`."""

    @staticmethod
    def forward(
        ctx: Any,
        forward: Function,
        backward: Optional[Function],
        again: Function,
        options: Dict[str, Any],
        *inputs: Optional[Tensor],
    ) -> Any:
        """Return the results."""
        ctx.backward_kernel, ctx.again, ctx.options = backward, again, options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        return forward(*inputs, **options)

    @staticmethod
    def backward(ctx: Any, *g_results: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        """Return the gradients of the inputs."""
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[4:]
        if all(gradient is None for gradient in g_results):
            gradients: Tensors = [None] * len(inputs)
        elif (
            ctx.backward_kernel is None
            or torch.is_grad_enabled()  # with create_graph
            or is_followed(g_results)
        ):
            gradients = gradients_by(ctx.again, inputs, needed, g_results, ctx.options)
        else:
            gradients = ctx.backward_kernel(g_results, *inputs, **ctx.options)
        return (None, None, None, None, *gradients)


def gradients_by(
    kernel: Function,
    inputs: Tensors,
    needed: Sequence[bool],
    g_results: Tensors,
    options: Dict[str, Any],
) -> Tensors:
    """Run a kernel with autograd and return the gradients of the inputs that need one."""
    create_graph = torch.is_grad_enabled()

    def own(x: Optional[Tensor], one: bool) -> Optional[Tensor]:
        if x is None:
            return None
        # a view, because one input may depend on another: the gradients are partial derivatives
        return x.view_as(x) if create_graph else x.detach().requires_grad_(one)

    with torch.enable_grad():
        inputs = [own(x, one) for x, one in zip(inputs, needed)]
        results = kernel(*inputs, **options)
    results = results if isinstance(results, tuple) else (results,)
    outputs, g_outputs = zip(*((y, g) for y, g in zip(results, g_results) if g is not None))
    wanted = [x for x, one in zip(inputs, needed) if one]
    found = iter(torch.autograd.grad(outputs, wanted, g_outputs, create_graph=create_graph))
    return [next(found) if one else None for one in needed]

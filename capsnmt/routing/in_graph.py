"""Kernels in the graphs of ``torch.compile``: each is one operation of torch, which a graph calls.

A graph that records the equations of an operator instead generates code of its own for them, a
dozen launches where a kernel has one. The operations are ``torch.ops.capsnmt.OPERATOR_BACKEND`` and
``.._gradient``; torch.export and jit.trace record the equations, for programs that run elsewhere.
"""

import inspect
from typing import Any, Dict, List, Optional, Sequence, Tuple, get_type_hints

import torch
from torch import Tensor

from .backend import Function, Kernel, allows, backend_obstacle
from .inputs_kept import gradients_by
from .tracing import is_compiled, is_transformed

KERNELS: Dict[str, List[Tuple[str, Kernel]]] = {}
"""Operator -> the operations of its kernels, and the kernels, in the order of the operator."""

KINDS = {Tensor: "Tensor", Optional[Tensor]: "Tensor?", int: "int", float: "float"}
"""What torch's schemas call the types of an operator's arguments."""


def register(operator: str, kernel: Kernel, equations: Function) -> None:
    """Register the operations of a kernel, where torch has operations of one's own (2.4).

    Args:
        operator: its name.
        kernel: what computes it.
        equations: what computes it for votes of a shape that the kernel does not route. Its types
            are those of the operation; it returns the capsules, or also the logits.
    """
    types = get_type_hints(inspect.unwrap(equations))
    if not hasattr(torch.library, "custom_op") or "return" not in types:
        return
    results = 1 if types.pop("return") is Tensor else 2
    kinds = [f"{KINDS[kind]} {name}" for name, kind in types.items() if kind in KINDS]
    inputs = ", ".join(kind for kind in kinds if kind.startswith("Tensor"))
    options = ", ".join(kind for kind in kinds if not kind.startswith("Tensor"))
    name = f"{operator}_{kernel.backend}"

    def routes(votes: Tensor) -> bool:
        return kernel.routes(votes.device.type, votes.dtype, votes.shape[1:])

    def made(found: Any) -> Any:
        return found[0] if results == 1 else tuple(found)

    def forward(*tensors: Any, **chosen: Any) -> Any:
        found = (kernel.forward if routes(tensors[0]) else equations)(*tensors, **chosen)
        found = found if isinstance(found, tuple) else (found,)
        return made([each.contiguous() for each in found])

    def shapes(votes: Tensor, *_: Any, **__: Any) -> Any:
        tokens, I, N, D = votes.shape
        return made([votes.new_empty(tokens, N, D), votes.new_empty(tokens, I, N)])

    def gradients(*given: Any, **chosen: Any) -> List[Tensor]:
        g_results, tensors = given[:results], given[results:]
        if routes(tensors[0]):
            found = kernel.backward(g_results, *tensors, **chosen)
        else:
            found = gradients_by(equations, tensors, [*map(learns, tensors)], g_results, chosen)
        return [each.contiguous() for each in found if each is not None]

    def gradient_shapes(*given: Any, **_: Any) -> List[Tensor]:
        return [each.new_empty(each.shape) for each in given[results:] if learns(each)]

    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Dict[str, Any], output: Any) -> None:
        ctx.chosen = keyword_only_inputs
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, *g_results: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        tensors = ctx.saved_tensors
        found = iter(gradient(*g_results, *tensors, **ctx.chosen))
        return tuple(next(found) if learns(tensor) else None for tensor in tensors)

    g_results = ", ".join(f"Tensor? g_{place}" for place in range(results))
    returned = "Tensor" if results == 1 else "(Tensor, Tensor)"
    operation = torch.library.custom_op(
        f"capsnmt::{name}",
        forward,
        mutates_args=(),
        schema=f"({inputs}, *, {options}) -> {returned}",
    )
    gradient = torch.library.custom_op(
        f"capsnmt::{name}_gradient",
        gradients,
        mutates_args=(),
        schema=f"({g_results}, {inputs}, *, {options}) -> Tensor[]",
    )
    operation.register_fake(shapes)
    gradient.register_fake(gradient_shapes)
    operation.register_autograd(backward, setup_context=keep)
    KERNELS.setdefault(operator, []).append((name, kernel))


def learns(tensor: Optional[Tensor]) -> bool:
    """Return whether a kernel computes the gradient of a tensor: it is there, and no mask."""
    return tensor is not None and tensor.is_floating_point()


def operation_for(
    operator: str, backend: str, tensors: Sequence[Optional[Tensor]]
) -> Optional[Any]:
    """Return the operation by which a graph of ``torch.compile`` routes, None for the equations."""
    votes = tensors[0]
    if votes is None or not is_compiled() or operator not in KERNELS:
        return None
    name = chosen(operator, backend, votes.device.type, votes.dtype)
    return None if name is None else getattr(torch.ops.capsnmt, name)


def chosen(operator: str, backend: str, device_type: str, dtype: torch.dtype) -> Optional[str]:
    """Return the name of the first operation that the backend allows, of votes of any shape.

    There is none in ``torch.func``, which derives no operation of one's own.
    """
    if is_transformed():
        return None
    for name, kernel in KERNELS[operator]:
        if (
            allows(backend, kernel)
            and backend_obstacle(kernel.backend, device_type) is None
            and kernel.routes(device_type, dtype, ())
        ):
            return name
    return None


# as torch.compiler.assume_constant_result, which imports the compiler: seconds of every command
chosen.__dict__["_dynamo_marked_constant"] = True

"""Routing on a CPU: C++ kernels that pass over the votes of a token while they are in the cache.

A pass is an iteration: for 16 output capsules at a time (AVX-512) the M-step, the functions of an
output capsule and the E-step read the votes of all inputs once. **D**: nothing is stored for the
backward pass but the inputs. It routes a token again, keeps the coefficients of each iteration in
the cache, and walks back over them.

The source is C++ without a header of torch; :mod:`.build` compiles it at first use.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple, Union, cast

import torch
from torch import Tensor

from .build import NO_COMPILER, compiler, library, obstacle

__all__ = [
    "NO_COMPILER",
    "compiler",
    "covers",
    "dynamic_routing",
    "em_routing",
    "inverted_routing",
    "obstacle",
    "simple_routing",
]

Tensors = Sequence[Optional[Tensor]]
Kernel = Callable[..., Any]


def covers(votes: Tensor) -> bool:
    """Return whether the kernels route these votes: fp32 or bf16 in the memory of a CPU."""
    # neither a fake tensor nor one of torch.func has memory
    plain = type(votes) in (Tensor, torch.nn.Parameter)
    plain = plain and not torch._C._functorch.is_functorch_wrapped_tensor(votes)
    return plain and votes.device.type == "cpu" and votes.dtype in (torch.float32, torch.bfloat16)


def em_routing(eager: Kernel, *inputs: Optional[Tensor], **options: Any) -> Tensor:
    """Compute ``em_kernel``; ``eager`` does the same, for second derivatives."""
    return CpuRouting.apply(EM, eager, options, *inputs)


def simple_routing(eager: Kernel, votes: Tensor, **options: Any) -> Tensor:
    """Compute ``simple_kernel``."""
    return CpuRouting.apply(SIMPLE, eager, options, votes)


def dynamic_routing(
    eager: Kernel, *inputs: Optional[Tensor], **options: Any
) -> Tuple[Tensor, Tensor]:
    """Compute ``dynamic_kernel``."""
    return CpuRouting.apply(DYNAMIC, eager, options, *inputs)


def inverted_routing(eager: Kernel, votes: Tensor, **options: Any) -> Tensor:
    """Compute ``inverted_kernel``."""
    return CpuRouting.apply(INVERTED, eager, options, votes)


class Operator(NamedTuple):
    """A forward and a backward kernel: their name in C++, and what they read and return."""

    name: str
    inputs: Tuple[str, ...]
    results: Tuple[str, ...] = ("capsules",)
    normalise: bool = False


EM = Operator("em", ("votes", "activation", "beta_a", "beta_u"))
SIMPLE = Operator("agreement", ("votes",), normalise=True)
INVERTED = Operator("inverted", ("votes",))
DYNAMIC = Operator("agreement", ("votes", "input_mask", "output_mask"), ("capsules", "logits"))


class Call(ctypes.Structure):
    """The arguments of a kernel, as ``tile.h`` declares them."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("votes", "g_capsules", "g_logits")),
        *((name, ctypes.c_void_p) for name in ("activation", "beta_a", "beta_u")),
        *((name, ctypes.c_void_p) for name in ("input_mask", "output_mask")),
        *((name, ctypes.c_void_p) for name in ("capsules", "logits", "g_votes")),
        *((name, ctypes.c_void_p) for name in ("g_activation", "g_beta_a", "g_beta_u")),
        *((name, ctypes.c_int64) for name in ("tokens", "I", "N", "D", "T")),
        ("variance_floor", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("bf16", "per_pair", "normalise", "threads")),
    ]


class CpuRouting(torch.autograd.Function):
    """A forward kernel and its backward kernel, which keep the inputs only."""

    @staticmethod
    def forward(
        ctx: Any,
        operator: Operator,
        eager: Kernel,
        options: Dict[str, Any],
        *inputs: Optional[Tensor],
    ) -> Union[Tensor, Tuple[Tensor, ...]]:
        """Return the operator's results."""
        ctx.operator, ctx.eager, ctx.options = operator, eager, options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        votes = cast(Tensor, inputs[0])
        tokens, I, N, D = votes.shape
        shapes = {"capsules": (tokens, N, D), "logits": (tokens, I, N)}
        results = {name: votes.new_empty(shapes[name]) for name in operator.results}
        run(operator, "forward", {**prepared(operator, inputs), **results}, options)
        return tuple(results.values()) if len(results) > 1 else results["capsules"]

    @staticmethod
    def backward(ctx: Any, *g_results: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
        """Return the gradients of the inputs; with ``create_graph`` the eager operator's."""
        if all(gradient is None for gradient in g_results):
            return (None,) * len(ctx.needs_input_grad)
        gradients = eager_gradients if torch.is_grad_enabled() else kernel_gradients
        return (None, None, None, *gradients(ctx, ctx.saved_tensors, g_results))


def kernel_gradients(ctx: Any, inputs: Tensors, g_results: Tensors) -> Tensors:
    """Return the gradients of the inputs in their dtype, by the backward kernel."""
    operator: Operator = ctx.operator
    tensors = prepared(operator, inputs)
    gradients = {
        f"g_{name}": torch.empty_like(tensor)
        for name, tensor in tensors.items()
        if tensor.is_floating_point()
    }
    for name, gradient in zip(operator.results, g_results):
        if gradient is not None:
            tensors[f"g_{name}"] = gradient.contiguous()
    run(operator, "backward", {**tensors, **gradients}, ctx.options)
    found = [gradients.get(f"g_{name}") for name in operator.inputs]
    return [g if g is None or x is None else g.to(x.dtype) for g, x in zip(found, inputs)]


def eager_gradients(ctx: Any, inputs: Tensors, g_results: Tensors) -> Tensors:
    """Return gradients that can be differentiated again."""
    results = ctx.eager(*inputs, **ctx.options)
    results = results if isinstance(results, tuple) else (results,)
    used = [(result, g) for result, g in zip(results, g_results) if g is not None]
    needed = ctx.needs_input_grad[3:]
    wanted = [x for x, one in zip(inputs, needed) if one]
    outputs, g_outputs = zip(*used)
    found = iter(torch.autograd.grad(outputs, wanted, g_outputs, create_graph=True))
    return [next(found) if one else None for one in needed]


def prepared(operator: Operator, inputs: Tensors) -> Dict[str, Tensor]:
    """Return the inputs as the kernels read them: contiguous; parameters per token or n in fp32."""
    tensors = {name: x for name, x in zip(operator.inputs, inputs) if x is not None}
    for name, x in tensors.items():
        if x.device.type != "cpu":  # the kernels would read its address
            raise ValueError(f"{name} is on {x.device}, and the votes are on the CPU")
    for name in ("activation", "beta_a", "beta_u"):
        if name in tensors:
            tensors[name] = tensors[name].float()
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def run(
    operator: Operator, direction: str, tensors: Dict[str, Tensor], options: Dict[str, Any]
) -> None:
    """Call a kernel, which reads and fills these tensors.

    Raises:
        MemoryError: there is none for a token's iterations.
    """
    votes = tensors["votes"]
    call = Call(
        **{name: tensor.data_ptr() for name, tensor in tensors.items()},
        **dict(zip(("tokens", "I", "N", "D"), votes.shape)),
        T=options["iterations"],
        variance_floor=options.get("variance_floor", 0.0),
        bf16=votes.dtype == torch.bfloat16,
        per_pair="activation" in tensors and tensors["activation"].size(-1) > 1,
        normalise=operator.normalise,
        threads=torch.get_num_threads(),
    )
    if getattr(library(), f"{operator.name}_{direction}")(ctypes.byref(call)):
        raise MemoryError(f"no memory to route votes of {list(votes.shape)}")

"""Routing on a CPU: C++ kernels that pass over the votes of a token while they are in the cache.

A pass is an iteration: for 16 output capsules at a time (AVX-512) the M-step, the functions of an
output capsule and the E-step read the votes of all inputs once. **D**: nothing is stored for the
backward pass but the inputs. It routes a token again, keeps the coefficients of each iteration in
the cache, and walks back over them.

The source is C++ without a header of torch; :mod:`.build` compiles it at first use. fp32 and bf16
votes in the memory of a CPU are covered.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from capsnmt.routing import dynamic, em, inverted, simple
from capsnmt.routing.backend import Tensors
from capsnmt.routing.operator import Operator

from . import build


@dataclass(frozen=True)
class CppKernel:
    """A forward and a backward kernel: their name in C++, and what they read and return."""

    name: str
    inputs: Tuple[str, ...]
    results: Tuple[str, ...] = ("capsules",)
    normalise: bool = False
    backend: str = "cpp"

    def routes(self, device_type: str, dtype: torch.dtype, shape: Sequence[int]) -> bool:
        """Return whether it routes such votes; the first call builds it, or warns."""
        return device_type == "cpu" and dtype in build.PRECISIONS and build.is_built("routing")

    def obstacle(self, device_type: str) -> Optional[str]:
        """Return why it cannot run here on this device type, None if it can."""
        if device_type != "cpu":
            return f"needs a CPU, not device type {device_type}"
        return build.obstacle("routing")

    def forward(
        self, votes: Tensor, *inputs: Optional[Tensor], **options: Any
    ) -> Union[Tensor, Tuple[Tensor, ...]]:
        """Return the operator's results."""
        tokens, I, N, D = votes.shape
        shapes = {"capsules": (tokens, N, D), "logits": (tokens, I, N)}
        results = {name: votes.new_empty(shapes[name]) for name in self.results}
        run(self, "forward", {**prepared(self, (votes, *inputs)), **results}, options)
        return tuple(results.values()) if len(results) > 1 else results["capsules"]

    def backward(self, g_results: Tensors, *inputs: Optional[Tensor], **options: Any) -> Tensors:
        """Return the gradients of the inputs in their dtype."""
        tensors = prepared(self, inputs)
        gradients = {
            f"g_{name}": torch.empty_like(tensor)
            for name, tensor in tensors.items()
            if tensor.is_floating_point()
        }
        for name, gradient in zip(self.results, g_results):
            if gradient is not None:
                tensors[f"g_{name}"] = gradient.contiguous()
        run(self, "backward", {**tensors, **gradients}, options)
        found = [gradients.get(f"g_{name}") for name in self.inputs]
        return [g if g is None or x is None else g.to(x.dtype) for g, x in zip(found, inputs)]


KERNELS: Sequence[Tuple[Operator, CppKernel]] = (
    (em.OPERATOR, CppKernel("em", ("votes", "activation", "beta_a", "beta_u"))),
    (simple.OPERATOR, CppKernel("agreement", ("votes",), normalise=True)),
    (inverted.OPERATOR, CppKernel("inverted", ("votes",))),
    (
        dynamic.OPERATOR,
        CppKernel("agreement", ("votes", "input_mask", "output_mask"), ("capsules", "logits")),
    ),
)


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


def prepared(kernel: CppKernel, inputs: Tensors) -> Dict[str, Tensor]:
    """Return the inputs as the kernels read them: contiguous; parameters per token or n in fp32."""
    tensors = {name: x for name, x in zip(kernel.inputs, inputs) if x is not None}
    for name, x in tensors.items():
        if x.device.type != "cpu":  # the kernels would read its address
            raise ValueError(f"{name} is on {x.device}, and the votes are on the CPU")
    for name in ("activation", "beta_a", "beta_u"):
        if name in tensors:
            tensors[name] = tensors[name].float()
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def run(
    kernel: CppKernel, direction: str, tensors: Dict[str, Tensor], options: Dict[str, Any]
) -> None:
    """Call a kernel, which reads and fills these tensors."""
    votes = tensors["votes"]
    call = Call(
        **{name: tensor.data_ptr() for name, tensor in tensors.items()},
        **dict(zip(("tokens", "I", "N", "D"), votes.shape)),
        T=options["iterations"],
        variance_floor=options.get("variance_floor", 0.0),
        bf16=votes.dtype == torch.bfloat16,
        per_pair="activation" in tensors and tensors["activation"].size(-1) > 1,
        normalise=kernel.normalise,
        threads=torch.get_num_threads(),
    )
    if getattr(build.library("routing"), f"{kernel.name}_{direction}")(ctypes.byref(call)):
        raise MemoryError(f"no memory to route votes of {list(votes.shape)}")

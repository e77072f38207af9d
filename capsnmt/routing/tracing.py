"""What only makes a CPU fast: one file each, with torch alone. docs/cpu.md says what each is for.

A GPU and a graph that torch records run as if this folder did not exist.
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_traced() -> bool:
    """Return whether a caller's ``torch.compile``, ``export`` or ``jit.trace`` records this call.

    What it records serves batches of any size. ``torch.compiler.is_compiling`` would be true in
    every thread while one of them compiles.
    """
    is_compiling = getattr(torch.compiler, "is_dynamo_compiling", bool)  # torch < 2.3 has none
    is_exporting = getattr(torch.compiler, "is_exporting", bool)  # nor has torch < 2.7
    return bool(is_compiling()) or bool(is_exporting()) or bool(torch.jit.is_tracing())


def is_followed(tensors: Sequence[Optional[Tensor]]) -> bool:
    """Return whether torch must see each operation on tensors, which may have no memory.

    For ``torch.func``, such as ``vmap``, for batches of gradients, forward differentiation and
    ``make_fx``.
    """
    wraps, has_memory = torch._C._functorch.is_functorch_wrapped_tensor, torch._C._has_storage
    return (
        forward_ad._current_level >= 0
        or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None
        or any(x is not None and (wraps(x) or not has_memory(x)) for x in tensors)
    )

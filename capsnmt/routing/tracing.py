"""What torch must see: the one question that whatever replaces its operations asks first."""

from typing import Optional, Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

# private to torch; every call of an operator asks them
_transforms, _modes = torch._C._are_functorch_transforms_active, torch._C._len_torch_dispatch_stack
_functions, _function = torch._C._len_torch_function_stack, torch._C._get_function_stack_at
_mode, _keys = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey
_wraps, _has_memory = torch._C._functorch.is_functorch_wrapped_tensor, torch._C._has_storage
# torch < 2.3 has none, nor torch < 2.7 the other
_is_recording = getattr(torch.compiler, "is_dynamo_compiling", lambda: False)
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)
PLAIN = {Tensor, nn.Parameter}
"""The classes of tensors of which torch computes all by itself."""


def is_traced() -> bool:
    """Return whether a caller's ``torch.compile``, ``export`` or ``jit.trace`` records this call.

    What it records serves batches of any size. ``torch.compiler.is_compiling`` would be true in
    every thread while one of them compiles.
    """
    return bool(_is_recording()) or bool(_is_exporting()) or bool(torch.jit.is_tracing())


def is_compiled() -> bool:
    """Return whether ``torch.compile`` records this call, for this process and no other.

    Of a torch that does not tell it from ``torch.export``, before 2.7, nothing is known to be so.
    """
    is_exporting = getattr(torch.compiler, "is_exporting", None)
    return bool(is_exporting and not is_exporting() and torch.compiler.is_dynamo_compiling())


def is_transformed() -> bool:
    """Return whether ``torch.func`` (``vmap``) or forward differentiation follows this call."""
    return forward_ad._current_level >= 0 or _transforms()


def is_recorded() -> bool:
    """Return whether ``make_fx`` records this call; dynamo, which cannot ask, is no part of it."""
    return not _is_recording() and _mode(_keys.PROXY) is not None


def is_followed(tensors: Sequence[Optional[Tensor]]) -> bool:
    """Return whether torch must derive from each operation on tensors, and know how by itself.

    It is so while torch records them (:func:`is_traced`), if :func:`is_transformed`, in batches of
    gradients and ``make_fx``, and for tensors that have no memory, such as fake ones, or a class of
    their own.
    """
    return (
        is_traced()
        or is_transformed()
        or is_recorded()
        or _mode(_keys.FAKE) is not None
        or any(
            type(x) not in PLAIN or _wraps(x) or not _has_memory(x)
            for x in tensors
            if x is not None
        )
    )


def is_watched(tensors: Sequence[Optional[Tensor]]) -> bool:
    """Return whether torch must see each operation on tensors: no kernel may take its place.

    Beside :func:`is_followed` it is so in any mode of torch, such as ``FlopCounterMode``, also of
    its functions, unless it is a default device.
    """
    return (
        is_followed(tensors)
        or _modes() > 0
        or any(type(_function(place)) is not DeviceContext for place in range(_functions()))
    )

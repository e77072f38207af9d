"""Matrix products in less precision: what a device has for them, and torch's autocast."""

import functools
import platform
from typing import List, Optional

import torch
from torch import Tensor

from capsnmt.machine import cpu_info

CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86, x86, ARM


@functools.cache
def bf16_obstacle(device_type: str) -> Optional[str]:
    """Return why a device should not compute in bf16, or None."""
    if device_type == "cuda":
        capability = torch.cuda.get_device_capability()
        if capability >= (8, 0):
            return None
        return f"this GPU has no bf16 (compute capability {capability[0]}.{capability[1]}, not 8.0)"
    if device_type == "cpu":
        if CPU_FLAGS & set(cpu_flags()):
            return None
        return f"this CPU ({platform.machine()}) has no bf16 instructions"
    return f"device type {device_type} is not supported"


def cpu_flags() -> List[str]:
    """Return the features of the CPU; none where the system does not list them."""
    # torch 2.2 has no function for it, newer versions a private one for each feature
    return cpu_info().split()


def autocast_dtype(device_type: str) -> Optional[torch.dtype]:
    """Return the precision of matrix products under autocast; None where there is none."""
    if device_type == "meta":
        return None
    if hasattr(torch, "get_autocast_dtype"):
        on = torch.is_autocast_enabled(device_type)
        return torch.get_autocast_dtype(device_type) if on else None
    if device_type == "cpu":  # torch < 2.4
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def convert_once(x: Tensor) -> Tensor:
    """Convert the input of several linear maps, as autocast would for each: not from fp64.

    **D**: the gradients of the maps are then added in bf16, in which each of them is computed.
    """
    dtype = autocast_dtype(x.device.type)
    return x if dtype is None or x.dtype == torch.float64 else x.to(dtype)

"""Autocast inside the model (``--autocast``): matrix products in bf16, everything else in fp32.

fairseq's ``--bf16`` is for TPUs and its ``--amp`` for GPUs. Inside encoder and decoder, autocast
works on every device, and training, validation, generation and scoring compute the same. Parameters
and their gradients, the residual stream, softmax, LayerNorm, routing and the loss stay in fp32, so
no loss scaling is needed.

**D**: the checkpoint has the setting, so that it is evaluated as it was trained, except that a CPU
decodes in fp32 where that is faster (:mod:`capsnmt.models.inference`). A device without bf16
instructions evaluates it in fp32, with a warning, and refuses to train it: it would emulate them,
more slowly than fp32.
"""

from __future__ import annotations

import functools
import logging
import platform
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ContextManager, List, Optional

import torch
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.cpu.linear import has_integers

AUTOCASTS = ("none", "bf16", "int8")
CPU_INFO = Path("/proc/cpuinfo")
CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86, x86, ARM

logger = logging.getLogger(__name__)


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
    if not CPU_INFO.is_file():
        return []
    return CPU_INFO.read_text(encoding="utf-8", errors="replace").split()


def int8_obstacle(device_type: str) -> Optional[str]:
    """Return why a device should not translate in 8-bit integers, or None."""
    if device_type != "cpu":
        return "only a CPU translates in 8-bit integers"
    if not any("vnni" in flag for flag in cpu_flags()):
        return f"this CPU ({platform.machine()}) has no 8-bit instructions (VNNI)"
    if not has_integers():
        return f"torch {torch.__version__} has no products of 8-bit integers"
    return None


def require_trainable(autocast: str, device_type: str) -> None:
    """Raise if a model with this ``--autocast`` should not be trained on the device.

    Raises:
        ConfigurationError: naming the obstacle.
    """
    obstacle = bf16_obstacle(device_type) if autocast == "bf16" else None
    if autocast == "int8":
        obstacle = "8-bit integers are for translation"
    if obstacle is not None:
        raise ConfigurationError(f"--autocast is {autocast}, but {obstacle}; give --autocast none")


@functools.cache
def evaluates_in_bf16(device_type: str) -> bool:
    """Return whether the device computes in bf16; warn once if it does not."""
    obstacle = bf16_obstacle(device_type)
    if obstacle is not None:
        logger.warning(f"--autocast bf16: {obstacle}; the model is evaluated in fp32")
    return obstacle is None


def autocast_of(model: nn.Module, autocast: str) -> ContextManager[Any]:
    """Return the context in which encoder or decoder runs.

    Args:
        model: encoder or decoder; its first parameter has its precision and its device.
        autocast: the value of ``--autocast``.

    Raises:
        ConfigurationError: the parameters are not fp32 (fp64 is left alone).
    """
    if autocast == "none":
        return nullcontext()
    if autocast == "int8":  # a model that is prepared for translation has none
        raise ConfigurationError(
            "--autocast is int8, but only a prepared model has 8-bit integers; give none or bf16"
        )
    parameter: Tensor = next(model.parameters())
    if parameter.dtype == torch.float64:
        return nullcontext()
    if parameter.dtype != torch.float32:
        raise ConfigurationError(
            f"--autocast is {autocast}, but the parameters are {parameter.dtype}; drop --fp16, "
            f"or give --autocast none (at generation --model-overrides \"{{'autocast': 'none'}}\")"
        )
    if not evaluates_in_bf16(parameter.device.type):
        return nullcontext()
    return torch.autocast(parameter.device.type, dtype=torch.bfloat16)


def autocast_dtype(device_type: str) -> Optional[torch.dtype]:
    """Return the precision of matrix products under autocast; None where it is off."""
    if hasattr(torch, "get_autocast_dtype"):
        on = torch.is_autocast_enabled(device_type)
        return torch.get_autocast_dtype(device_type) if on else None
    if device_type == "cpu":  # torch < 2.4
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def convert_once(x: Tensor) -> Tensor:
    """Convert the input of several linear maps, which autocast would convert for each of them.

    **D**: the gradients of the maps are then added in bf16, in which each of them is computed.
    """
    dtype = autocast_dtype(x.device.type)
    return x if dtype is None else x.to(dtype)

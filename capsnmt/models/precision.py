"""``--autocast``: matrix products of encoder and decoder in bf16, everything else in fp32.

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
from contextlib import nullcontext
from typing import Any, ContextManager

import torch
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.modules.autocast import bf16_obstacle

AUTOCASTS = ("none", "bf16")

logger = logging.getLogger(__name__)


def require_trainable(autocast: str, device_type: str) -> None:
    """Raise if a model with this ``--autocast`` should not be trained on the device."""
    obstacle = bf16_obstacle(device_type) if autocast == "bf16" else None
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
    """Return the context in which encoder or decoder runs; models in fp64 are left alone."""
    if autocast == "none":
        return nullcontext()
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

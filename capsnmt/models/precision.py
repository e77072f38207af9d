"""``--autocast``: matrix products of encoder and decoder in bf16, everything else in fp32.

fairseq's ``--bf16`` is for TPUs and its ``--amp`` for GPUs. Inside encoder and decoder, autocast
works on every device, and training, validation, generation and scoring compute the same. Parameters
and their gradients, the residual stream, softmax, LayerNorm, routing and the loss stay in fp32, so
no loss scaling is needed.

**D**: the checkpoint has the setting, so that it is evaluated as it was trained, except that a CPU
decodes in fp32 where that is faster (:data:`WIDE`). A device without bf16
instructions evaluates it in fp32, with a warning, and refuses to train it: it would emulate them,
more slowly than fp32.
"""

import functools
import logging
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Iterator, List

import torch
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.modules import autocast as products
from capsnmt.modules.block_linear import BlockLinear

AUTOCASTS = ("none", "bf16")

PREPARATIONS: List[Callable[[nn.Module], None]] = []
"""What else prepares a linear map of a model that decodes: :mod:`capsnmt.fast` adds it."""

WIDE = 512
"""**D**: a CPU decodes a narrower model in fp32, whatever its ``--autocast``, unless it has AMX.

With 128 features and AVX-512, bf16 took 1.17 times as long as fp32 (Zen 4) and changed one of eight
translations; with 512 features it took 0.6 times as long.
"""

logger = logging.getLogger(__name__)


@functools.cache
def evaluates_in_bf16(device_type: str) -> bool:
    """Return whether the device computes in bf16; warn once if it does not."""
    obstacle = products.bf16_obstacle(device_type)
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


def linear_maps(model: Any) -> Iterator[nn.Module]:
    """Yield the linear maps of encoder and decoder: those that autocast runs in bf16.

    A module names the parts whose maps it computes in fp32 in ``in_fp32``.
    """
    encoder, decoder = model.encoder, model.decoder
    parts = [*encoder.layers, *decoder.layers]
    parts += [encoder.layer_aggregation, decoder.layer_aggregation, decoder.output_projection]
    for part in filter(None, parts):
        in_fp32 = {
            each
            for module in part.modules()
            for name in getattr(module, "in_fp32", ())
            for each in getattr(module, name).modules()
        }
        for module in part.modules():
            if isinstance(module, (nn.Linear, BlockLinear)) and module not in in_fp32:
                yield module


def decodes_in_bf16(model: Any, device: str) -> bool:
    """Return whether a prepared model computes in bf16: it has ``--autocast``, and that is faster.

    A GPU always does; for a CPU see :data:`WIDE`.
    """
    if model.decoder.autocast != "bf16" or not evaluates_in_bf16(device):
        return False
    narrow = model.decoder.embed_dim < WIDE
    return device != "cpu" or not narrow or "amx_bf16" in products.cpu_flags()


@torch.no_grad()
def prepare_linear_maps(model: Any) -> None:
    """Let decoding compute the linear maps as fast as it can.

    In bf16 they become what autocast would make of them at every step. An embedding that shares
    its matrix with the output projection keeps it as it is.
    """
    parameter = next(model.decoder.parameters())
    device = parameter.device.type
    if parameter.dtype != torch.float32:
        return
    in_bf16 = decodes_in_bf16(model, device)
    if device == "cpu" and not in_bf16:
        model.encoder.autocast = model.decoder.autocast = "none"
    for module in linear_maps(model):
        if in_bf16:
            for name, tensor in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(tensor.to(torch.bfloat16), tensor.requires_grad))
        for prepare in PREPARATIONS:
            prepare(module)

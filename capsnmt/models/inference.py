"""Preparation of a translation model for decoding: its linear maps and their precision."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

import torch
from torch import nn

from capsnmt.models.precision import evaluates_in_bf16
from capsnmt.modules import autocast
from capsnmt.modules.block_linear import BlockLinear

PREPARATIONS: List[Callable[[nn.Module], None]] = []
"""What else prepares a linear map of a model that decodes: :mod:`capsnmt.fast` adds it."""

WIDE = 512
"""**D**: a CPU decodes a narrower model in fp32, whatever its ``--autocast``, unless it has AMX.

With 128 features and AVX-512, bf16 took 1.17 times as long as fp32 (Zen 4) and changed one of eight
translations; with 512 features it took 0.6 times as long.
"""


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
    return device != "cpu" or not narrow or "amx_bf16" in autocast.cpu_flags()


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

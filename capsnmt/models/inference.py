"""Preparation of a translation model for decoding under ``--autocast``."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import nn

from capsnmt.modules.autocast import evaluates_in_bf16
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.layer_aggregation.routing import BlockLinear


def linear_maps(model: Any) -> Iterator[nn.Module]:
    """Yield the linear maps that encoder and decoder run under autocast."""
    encoder, decoder = model.encoder, model.decoder
    parts = [*encoder.layers, *decoder.layers]
    parts += [encoder.layer_aggregation, decoder.layer_aggregation, decoder.output_projection]
    for part in filter(None, parts):
        in_fp32 = {
            module.head_weights
            for module in part.modules()
            if isinstance(module, CapsuleAttention) and module.vertical
        }
        for module in part.modules():
            if isinstance(module, (nn.Linear, BlockLinear)) and module not in in_fp32:
                yield module


@torch.no_grad()
def convert_linear_maps(model: Any) -> None:
    """Convert the linear maps to what autocast would make of them at every step of decoding.

    The values stay the same. An embedding that shares its matrix with the output projection keeps
    it in fp32.
    """
    parameter = next(model.decoder.parameters())
    if model.decoder.autocast == "none" or parameter.dtype != torch.float32:
        return
    if not evaluates_in_bf16(parameter.device.type):
        return
    for module in linear_maps(model):
        for name, tensor in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(tensor.to(torch.bfloat16), tensor.requires_grad))

"""Preparation of the linear maps of a translation model for decoding."""

from __future__ import annotations

import functools
from typing import Any, Iterator, Sequence

import torch
from fairseq import search
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from capsnmt.models.beam_search import BeamSearch
from capsnmt.modules.autocast import evaluates_in_bf16
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.layer_aggregation.routing import BlockLinear

CACHE_LINE = 16
"""fp32 numbers in a cache line of 64 bytes."""


def search_faster() -> None:
    """Patch fairseq's tasks: a plain beam search with our models chooses faster."""
    original = FairseqTask.build_generator
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def build_generator(self: Any, models: Sequence[nn.Module], *args: Any, **kwargs: Any) -> Any:
        generator = original(self, models, *args, **kwargs)
        plain = type(getattr(generator, "search", None)) is search.BeamSearch
        ours = MODEL_REGISTRY["capsnmt_transformer"]
        if plain and all(isinstance(model, ours) for model in models):
            generator.search = BeamSearch(self.target_dictionary)
        return generator

    FairseqTask.build_generator = build_generator


def linear_maps(model: Any) -> Iterator[nn.Module]:
    """Yield the linear maps of encoder and decoder: those that autocast runs in bf16."""
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
def prepare_linear_maps(model: Any) -> None:
    """Store the linear maps as decoding reads them fastest; their values stay the same.

    Under ``--autocast`` they become what autocast would make of them at every step. In fp32 on a
    CPU they are :func:`stored_by_input`. An embedding that shares its matrix with the output
    projection keeps it as it is.
    """
    parameter = next(model.decoder.parameters())
    if parameter.dtype != torch.float32:
        return
    device = parameter.device.type
    if model.decoder.autocast != "none" and evaluates_in_bf16(device):
        for module in linear_maps(model):
            for name, tensor in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(tensor.to(torch.bfloat16), tensor.requires_grad))
    elif device == "cpu":
        for module in linear_maps(model):
            if isinstance(module, nn.Linear):
                weight = module.weight
                module.weight = nn.Parameter(stored_by_input(weight), weight.requires_grad)


def stored_by_input(weight: Tensor) -> Tensor:
    """Return the matrix of a linear map ``[out, in]`` with the weights of an input side by side.

    A library for matrix products then need not transpose the matrix for the few rows of a step of
    decoding. A cache line is left free after each input: widths are often powers of two, and all
    inputs would share few places in the cache.
    """
    outputs, inputs = weight.shape
    stored = weight.new_zeros(inputs, outputs + CACHE_LINE)[:, :outputs]
    return stored.copy_(weight.t()).t()

"""Loss without an encoder layer: against models whose hand-over is changed by other means."""

from __future__ import annotations

import copy
from typing import Any, List

import pytest
import torch
from torch import Tensor

from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.layer_ablation import LayerAblation
from tests.analysis.systems import (
    analysed,
    corpus,
    loss_per_token,
    precise,
    states_of_each_sentence,
    system_of,
)
from tests.support import forward

THREE = ("--encoder-layers", "3")
NORM = ("--encoder-normalize-before",)
# model -> layers that the decoder reads
MODELS = {
    "multi-layer": (("transformer_mlmha", *THREE), (1, 2, 3)),
    "two sources": (("transformer_mlmha", *THREE, "--mlmha-sources", "2"), (2, 3)),
    "pre-norm": (("transformer_mlmha", *NORM), (1, 2)),
    "transparent": (
        ("capsnmt_transformer", *THREE, *NORM, "--layer-aggregation", "transparent"),
        (0, 1, 2, 3),
    ),
    "routing": (("transformer_dlcl_routing", *THREE), (1, 2, 3)),
    "linear": (("capsnmt_transformer", *NORM, "--layer-aggregation", "linear"), (1, 2)),
}


def means(model: Any) -> List[Tensor]:
    """Return the mean state of each layer over all tokens, as the decoder reads it."""
    sentences = states_of_each_sentence(model, "encoder")
    layers = [torch.cat(layer) for layer in zip(*sentences)]
    norm = model.encoder.layer_norm
    return [(layer if norm is None else norm(layer)).mean(0).detach() for layer in layers]


def replaced(model: Any, layer: int, value: Tensor) -> Any:
    """Return a copy whose decoder reads a constant instead of a layer."""
    model = copy.deepcopy(model)
    encoder = model.encoder
    module = encoder.transparent or encoder.layer_aggregation
    if module is not None:  # its inputs are a list: H^0..H^L or H^1..H^L
        index = layer if module is encoder.transparent else layer - 1

        def change(_: Any, inputs: Any) -> Any:
            states = list(inputs[0])
            states[index] = value.expand_as(states[index])
            return (states,)

        module.register_forward_pre_hook(change)
        return model
    block = layer - 1 - (len(encoder.layers) - encoder.num_sources)
    encode = encoder.forward

    def overwritten(*args: Any, **kwargs: Any) -> Any:
        encoded = encode(*args, **kwargs)
        output = encoded["encoder_out"][0].clone()
        output[..., block * 16 : (block + 1) * 16] = value
        return {**encoded, "encoder_out": [output]}

    encoder.forward = overwritten  # beam search does not call the encoder's hooks
    return model


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize(("flags", "layers"), MODELS.values(), ids=MODELS)
def test_it_is_the_loss_of_a_model_that_reads_a_constant(
    flags: Any, layers: Any, left_pad: bool
) -> None:
    model = precise(*flags)
    rows = analysed(LayerAblation, system_of(model, left_pad)).rows()
    assert [row[:2] for row in rows] == [(l, by) for l in layers for by in ("zeros", "mean")]
    intact = loss_per_token(model)
    for layer, replacement, loss, increase, _ in rows:
        mean = means(model)[layer]
        value = mean if replacement == "mean" else torch.zeros_like(mean)
        expected = loss_per_token(replaced(model, layer, value))
        assert (loss, increase) == pytest.approx((expected, expected - intact), abs=1e-6)
        assert abs(expected - intact) > 2e-6


def test_zeros_are_those_of_the_flag_that_masks_a_source() -> None:
    model = precise("transformer_mlmha", *THREE)
    rows = {row[:2]: row[2] for row in analysed(LayerAblation, system_of(model)).rows()}
    for layer in (1, 2, 3):
        masked = precise("transformer_mlmha", *THREE, "--mlmha-mask-source", str(layer))
        masked.load_state_dict(model.state_dict())
        assert rows[layer, "zeros"] == pytest.approx(loss_per_token(masked), abs=1e-6)


def test_the_model_is_afterwards_as_before() -> None:
    model = precise("transformer_mlmha")
    before = forward(model, *corpus())
    analysed(LayerAblation, system_of(model))
    assert torch.equal(forward(model, *corpus()), before)


@pytest.mark.parametrize(
    "flags",
    [
        ("capsnmt_transformer",),
        ("transformer_em_routing",),
        ("transformer_mlmha", "--mlmha-sources", "1"),
        ("transformer_dlcl_routing", "--layer-aggregation-side", "decoder"),
    ],
)
def test_a_decoder_that_reads_the_top_layer_only_has_none(flags: Any) -> None:
    with pytest.raises(NotApplicableError, match="reads the top encoder layer only"):
        LayerAblation(system_of(precise(*flags)))

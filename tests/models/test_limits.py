"""Limit cases: where a mechanism must be the Transformer, exactly."""

from __future__ import annotations

import pytest
import torch

from capsnmt.models import PRESETS
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.support import EVERYWHERE, batch, build, forward, randomise_special_starts, sentences

INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
NORM = ("--encoder-normalize-before", "--decoder-normalize-before")
ONE_LAYER = ("--encoder-layers", "1", "--decoder-layers", "1")
RESIDUALS = "attention-residuals"


def without_epsilon(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with LayerNorms whose output is the same for every multiple of an input."""
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-30  # not 0: what is padded may be constant
    return model


def outputs_and_gradients(model: torch.nn.Module) -> tuple:
    output = forward(model.double(), *INPUTS)
    output.square().sum().backward()
    return output, {name: p.grad for name, p in model.named_parameters()}


def assert_is_the_transformer(flags: tuple, around: tuple, own: str = "no parameter") -> None:
    """Same output, and the same gradient of every parameter that the Transformer has."""
    transformer = without_epsilon(build("capsnmt_transformer", *around))
    model = without_epsilon(build("capsnmt_transformer", *around, *flags, seed=2))
    missing, unexpected = model.load_state_dict(transformer.state_dict(), strict=False)
    assert not unexpected
    assert all(own in name for name in missing)
    expected, gradients = outputs_and_gradients(transformer)
    output, found = outputs_and_gradients(model)
    torch.testing.assert_close(output, expected)
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("around", [(), NORM], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_multi_layer_attention_to_one_source(variant: str, around: tuple) -> None:
    assert_is_the_transformer(("--mlmha", variant, "--mlmha-sources", "1"), around)


AGGREGATED = {
    "linear": "--layer-aggregation linear",
    "dense": "--layer-aggregation dense",
    # every LayerNorm reads the mean of what the residual sum adds up: a multiple of the sum
    "residuals": "--layer-aggregation attention-residuals",
    "blocks": "--layer-aggregation attention-residuals --attention-residuals-block 2",
}


@pytest.mark.parametrize(
    ("name", "around"),
    [*((name, NORM) for name in AGGREGATED), ("linear", ()), ("dense", ())],
)
def test_aggregation_that_starts_as_the_transformer(name: str, around: tuple) -> None:
    own = "layer_aggregation" if name == "linear" else "connection"
    assert_is_the_transformer(tuple(AGGREGATED[name].split()), around, own)


@pytest.mark.parametrize("around", [(), NORM], ids=["post-norm", "pre-norm"])
def test_linear_aggregation_with_the_identity_on_the_bottom_layer(around: tuple) -> None:
    """It is a Transformer of one layer: a LayerNorm at the end is applied to every layer."""
    transformer = build("capsnmt_transformer", *around, *ONE_LAYER)
    model = build("capsnmt_transformer", *around, "--layer-aggregation", "linear")
    model.load_state_dict(transformer.state_dict(), strict=False)
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            weight = stack.layer_aggregation.combine.weight  # [W_1, W_2] = [0, I]
            weight.copy_(weight.flip(1).flip(0))
    torch.testing.assert_close(forward(model, *INPUTS), forward(transformer, *INPUTS))


def test_transparent_attention_with_all_weight_on_the_top_layer() -> None:
    transformer = build("capsnmt_transformer")
    model = build("capsnmt_transformer", "--layer-aggregation", "transparent")
    model.load_state_dict(transformer.state_dict(), strict=False)
    with torch.no_grad():
        model.encoder.transparent.weight[-1] = 1000.0
    torch.testing.assert_close(forward(model, *INPUTS), forward(transformer, *INPUTS))


@pytest.mark.parametrize("around", [(), NORM], ids=["post-norm", "pre-norm"])
def test_attention_over_depth_to_one_layer(around: tuple) -> None:
    transformer = build("capsnmt_transformer", *around, *ONE_LAYER)
    model = build("capsnmt_transformer", *around, *ONE_LAYER, "--layer-aggregation", "attention")
    missing, _ = model.load_state_dict(transformer.state_dict(), strict=False)
    assert all("layer_aggregation" in name for name in missing)
    torch.testing.assert_close(forward(model, *INPUTS), forward(transformer, *INPUTS))


@pytest.mark.parametrize(
    "around",
    [(), NORM, ("--mlmha", "M-10"), ("--capsule-routing-encoder", "both")],
    ids=["post-norm", "pre-norm", "multi-layer", "capsules"],
)
def test_talking_heads_as_they_start(around: tuple) -> None:
    flags = ("--head-aggregation", "talking", *EVERYWHERE)
    assert_is_the_transformer(flags, around, own="_mixing")


@pytest.mark.parametrize("around", [(), NORM], ids=["post-norm", "pre-norm"])
def test_gates_without_weights_halve_every_head(around: tuple) -> None:
    transformer = build("capsnmt_transformer", *around)
    gated = build("capsnmt_transformer", *around, "--head-aggregation", "gated", *EVERYWHERE)
    missing, _ = gated.load_state_dict(transformer.state_dict(), strict=False)
    assert all("head_gate" in name for name in missing)
    assert len(missing) == 6
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            if "head_gate" in name:
                parameter.zero_()
        for name, parameter in transformer.named_parameters():
            if "out_proj.weight" in name:
                parameter.mul_(0.5)
    torch.testing.assert_close(forward(gated, *INPUTS), forward(transformer, *INPUTS))


ONE_HEAD = {
    **{arch: (arch,) for arch in PRESETS},
    **{
        kind: ("capsnmt_transformer", "--head-aggregation", kind, *EVERYWHERE)
        for kind in ("gated", "talking")
    },
}


@pytest.mark.parametrize("system", ONE_HEAD)
def test_one_head(system: str) -> None:
    heads = ("--encoder-attention-heads", "1", "--decoder-attention-heads", "1")
    output, gradients = outputs_and_gradients(build(*ONE_HEAD[system], *heads).train())
    assert output.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


DROP = ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5")


@pytest.mark.parametrize("mode", ["linear", "dense", RESIDUALS])
def test_a_dropped_layer_is_the_identity_and_fairseqs_draw_decides_which(mode: str) -> None:
    """All start as the Transformer, so they must equal its layer dropout."""
    flags = (*DROP, *(NORM if mode == RESIDUALS else ()))
    plain = without_epsilon(build("capsnmt_transformer", *flags)).train()
    model = build("capsnmt_transformer", *flags, "--layer-aggregation", mode)
    model = without_epsilon(model).train()
    model.load_state_dict(plain.state_dict(), strict=False)
    for seed in range(6):
        outputs = []
        for one in (plain, model):
            torch.manual_seed(seed)
            outputs.append(forward(one, *INPUTS))
        torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("mode", ["dlcl", "dense"])
def test_the_output_of_a_dropped_layer_is_its_input_in_every_sum_above(mode: str) -> None:
    model = build("capsnmt_transformer", "--layer-aggregation", mode, "--encoder-layerdrop", "0.5")
    encoder = randomise_special_starts(model).double().train().encoder
    source = batch(INPUTS[0], left_pad=True)
    encoder.encoder_layerdrop = 1.0
    dropped = encoder(source)["encoder_out"][0]
    encoder.encoder_layerdrop = 0.0
    for layer in encoder.layers:
        layer.forward = lambda x, *_, **__: x
    torch.testing.assert_close(dropped, encoder(source)["encoder_out"][0])

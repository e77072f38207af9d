"""Every flag reaches the model."""

from __future__ import annotations

import argparse
import re
from typing import Any, Callable

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.models.config import defaults, flag
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.modules.attention import BlockAttention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.layer_aggregation.routing import LayerRouting
from capsnmt.modules.multi_layer_attention import VARIANTS, MultiLayerAttention
from tests.support import CAPSULES, HEADS, LAYERS, SMALL, TASK, build, parse


def routed(model: torch.nn.Module) -> dict:
    return {n: m for n, m in model.named_modules() if isinstance(m, HeadRouting)}


def modules(model: torch.nn.Module, kind: Any) -> dict:
    return {
        re.sub(r"layers\.(\d)\.", r"\1.", n): m
        for n, m in model.named_modules()
        if isinstance(m, kind)
    }


def values(kind: type, name: str) -> Callable[[torch.nn.Module], set]:
    """Return a probe: the values of an attribute of all modules of the kind."""
    return lambda model: {getattr(m, name) for m in modules(model, kind).values()}


def places(kind: Any) -> Callable[[torch.nn.Module], set]:
    """Return a probe: the names of the modules of the kind."""
    return lambda model: set(modules(model, kind))


def aggregated(model: torch.nn.Module) -> dict:
    """The aggregation of each stack."""
    return {
        name: type(stack.layer_aggregation).__name__
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack.layer_aggregation is not None
    }


def connected(model: torch.nn.Module) -> dict:
    """What connects the layers of each stack."""
    return {
        name: type(stack.connection).__name__
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack.connection is not None
    }


# flag -> (the flags around it, a probe of the model, the value it must show)
REACHES = {
    "--head-aggregation simple": ((), values(HeadRouting, "routing"), {"simple"}),
    "--head-aggregation em": ((), values(HeadRouting, "routing"), {"em"}),
    "--head-aggregation gated": (
        (),
        places(HeadGate),
        {f"encoder.{n}.self_attn.head_gate" for n in (0, 1)},
    ),
    "--head-aggregation talking": (
        (),
        places(HeadMixing),
        {f"encoder.{n}.self_attn.{at}_mixing" for n in (0, 1) for at in ("score", "weight")},
    ),
    "--head-aggregation-attention enc-dec,dec-self": (
        HEADS,
        places(HeadRouting),
        {f"decoder.{n}.{kind}.out_proj" for n in (0, 1) for kind in ("self_attn", "encoder_attn")},
    ),
    "--head-aggregation-encoder-layers 2": (
        HEADS,
        places(HeadRouting),
        {"encoder.1.self_attn.out_proj"},
    ),
    "--head-aggregation-decoder-layers 1-1": (
        (*HEADS, "--head-aggregation-attention", "dec-self"),
        places(HeadRouting),
        {"decoder.0.self_attn.out_proj"},
    ),
    "--head-capsules 8": (HEADS, values(HeadRouting, "num_capsules"), {8}),
    "--head-capsule-norm": (
        HEADS,
        lambda model: {m.norm is not None for m in routed(model).values()},
        {True},
    ),
    "--layer-aggregation linear": (
        (),
        aggregated,
        {"encoder": "LinearCombination", "decoder": "LinearCombination"},
    ),
    "--layer-aggregation iterative": (
        (),
        aggregated,
        {"encoder": "IterativeCombination", "decoder": "IterativeCombination"},
    ),
    "--layer-aggregation dynamic": (
        (),
        aggregated,
        {"encoder": "DynamicCombination", "decoder": "DynamicCombination"},
    ),
    "--layer-aggregation attention": (
        (),
        aggregated,
        {"encoder": "DepthAttention", "decoder": "DepthAttention"},
    ),
    "--layer-aggregation dlcl": ((), connected, {"encoder": "DLCL", "decoder": "DLCL"}),
    "--layer-aggregation dense": (
        (),
        connected,
        {"encoder": "DepthWeightedAverage", "decoder": "DepthWeightedAverage"},
    ),
    "--layer-aggregation dynamic-routing": (
        (),
        values(LayerRouting, "routing"),
        {"dynamic-routing"},
    ),
    "--layer-aggregation em-routing": ((), values(LayerRouting, "routing"), {"em-routing"}),
    "--layer-aggregation transparent": ((), values(BlockAttention, "block"), {0, 1}),
    "--layer-aggregation-side encoder": (LAYERS, aggregated, {"encoder": "LayerRouting"}),
    "--layer-aggregation-side decoder": (LAYERS, aggregated, {"decoder": "LayerRouting"}),
    "--layer-capsules 8": (LAYERS, values(LayerRouting, "num_capsules"), {8}),
    "--layer-capsule-input own": (LAYERS, values(LayerRouting, "own"), {True}),
    **{
        f"--mlmha {variant}": ((), values(MultiLayerAttention, "variant"), {variant})
        for variant in VARIANTS
    },
    "--mlmha-sources 1": (
        ("--mlmha", "M-10"),
        values(MultiLayerAttention, "num_sources"),
        {1},
    ),
    "--mlmha-mask-source 2": (
        ("--mlmha", "M-10"),
        lambda model: model.encoder.masked_source,
        2,
    ),
    "--capsule-routing-encoder vertical": ((), values(CapsuleAttention, "vertical"), {True}),
    "--capsule-routing-encoder horizontal": ((), values(CapsuleAttention, "horizontal"), {True}),
    "--capsule-routing-decoder horizontal": (
        (),
        places(CapsuleAttention),
        {"decoder.0.self_attn", "decoder.1.self_attn"},
    ),
    "--capsule-routing-encoder-layers 2": (
        CAPSULES,
        places(CapsuleAttention),
        {"encoder.1.self_attn"},
    ),
    "--capsule-routing-decoder-layers 1": (
        ("--capsule-routing-decoder", "horizontal"),
        places(CapsuleAttention),
        {"decoder.0.self_attn"},
    ),
    "--routing-iterations 5": (
        (*HEADS, *LAYERS, *CAPSULES),
        lambda model: {m.iterations for k in ROUTING_MODULES for m in modules(model, k).values()},
        {5},
    ),
    "--autocast bf16": (
        (),
        lambda model: {model.encoder.autocast, model.decoder.autocast},
        {"bf16"},
    ),
    "--compile": (
        (),
        lambda model: {model.encoder.compiles, model.decoder.compiles},
        {True},
    ),
    "--routing-backend eager": (
        (*HEADS, *LAYERS, *CAPSULES),
        lambda model: {m.backend for k in ROUTING_MODULES for m in modules(model, k).values()},
        {"eager"},
    ),
}
ROUTING_MODULES = (HeadRouting, LayerRouting, CapsuleAttention)


@pytest.mark.parametrize("given", REACHES)
def test_the_flag_reaches_the_model(given: str) -> None:
    around, probe, expected = REACHES[given]
    assert probe(build("capsnmt_transformer", *around, *given.split())) == expected
    assert probe(build("capsnmt_transformer", *around)) != expected


def test_every_flag_of_the_plugin_has_such_a_test() -> None:
    tested = {given.split()[0] for given in REACHES} | {"--init-from"}  # test_initialisation.py
    assert tested == {flag(name) for name in defaults()}


@pytest.mark.parametrize("kind", ["gated", "talking"])
def test_the_chosen_attentions_and_layers_hold_for_heads_that_are_not_routed(kind: str) -> None:
    chosen = ("--head-aggregation-attention", "enc-self,enc-dec")
    layers = ("--head-aggregation-encoder-layers", "1", "--head-aggregation-decoder-layers", "2")
    model = build("capsnmt_transformer", "--head-aggregation", kind, *chosen, *layers)
    found = places((HeadGate, HeadMixing))(model)
    assert {name.rpartition(".")[0] for name in found} == {
        "encoder.0.self_attn",
        "decoder.1.encoder_attn",
    }


def test_iterations_change_the_output() -> None:
    inputs = torch.randn(3, 2, 16, generator=torch.Generator().manual_seed(0))
    outputs = []
    for iterations in ("1", "3"):
        flags = ("--head-aggregation", "em", "--routing-iterations", iterations)
        (module, *_) = routed(build("capsnmt_transformer", *flags)).values()
        outputs.append(module(inputs))
    assert not torch.allclose(*outputs)


def test_the_preset_is_the_papers_effective_aggregation() -> None:
    model = build("transformer_em_routing", "--encoder-layers", "3")
    assert set(routed(model)) == {f"encoder.layers.{i}.self_attn.out_proj" for i in (0, 1)}
    assert {m.routing for m in routed(model).values()} == {"em"}


def test_each_preset_is_what_its_paper_recommends() -> None:
    dlcl = build("transformer_dlcl_routing")
    assert aggregated(dlcl) == {"encoder": "LayerRouting", "decoder": "LayerRouting"}
    assert values(LayerRouting, "routing")(dlcl) == {"em-routing"}
    assert connected(build("transformer_dlcl")) == {"encoder": "DLCL", "decoder": "DLCL"}
    for arch, variant, sources in (
        ("transformer_mlmha", "M-10", 2),
        ("transformer_mlmha_big", "M-10", 2),
        ("transformer_mlmha_iwslt", "M-00", 2),
    ):
        attentions = modules(build(arch), MultiLayerAttention).values()
        assert {(m.variant, m.num_sources) for m in attentions} == {(variant, sources)}
    capsules = modules(build("capsule_transformer"), CapsuleAttention)
    assert {name: (m.vertical, m.horizontal) for name, m in capsules.items()} == {
        f"{side}.{layer}.self_attn": (side == "encoder", True)
        for side in ("encoder", "decoder")
        for layer in (0, 1)
    }


def test_a_flag_takes_precedence_over_a_presets_value() -> None:
    assert not routed(build("transformer_em_routing", "--head-aggregation", "linear"))
    simple = build("transformer_em_routing", "--head-aggregation", "simple")
    assert {m.routing for m in routed(simple).values()} == {"simple"}
    assert len(routed(simple)) == 2
    decoder = build("transformer_em_routing", "--head-aggregation-attention", "dec-self")
    assert all(name.startswith("decoder") for name in routed(decoder))


def test_a_preset_names_only_layers_that_there_are() -> None:
    assert set(routed(build("transformer_em_routing", "--encoder-layers", "1"))) == {
        "encoder.layers.0.self_attn.out_proj"
    }
    # a list that the user gives is not shortened
    given = ("--head-aggregation-encoder-layers", "1,2", "--encoder-layers", "1")
    with pytest.raises(ConfigurationError, match="no layer 2"):
        build("transformer_em_routing", *given)


def test_a_model_that_no_architecture_has_completed_is_the_base_model() -> None:
    dimensions = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 16}
    args = argparse.Namespace(**dimensions, head_aggregation="em")
    built = CapsnmtTransformer.build_model(args, TASK)
    assert len(routed(built)) == 1
    assert built.decoder.layers[0].fc1.out_features == 2048
    plain = CapsnmtTransformer.build_model(argparse.Namespace(**dimensions), TASK)
    assert not routed(plain)


def test_arguments_saved_in_a_checkpoint_are_accepted_again() -> None:
    """A checkpoint's arguments hold every switch, and pass through the same function."""
    for arch, flags in (("transformer_em_routing", ("--head-aggregation", "linear")), *ROUTED):
        args = parse(arch, *SMALL, *flags)
        before = dict(vars(args))
        ARCH_CONFIG_REGISTRY[arch](args)
        assert vars(args) == before


ROUTED = (
    ("transformer_em_routing", ()),
    ("transformer_em_routing", ("--head-aggregation-attention", "dec-self")),
    ("transformer_dlcl_routing", ("--layer-aggregation", "dynamic")),
    ("transformer_dlcl_routing", ("--layer-aggregation", "transparent")),
    ("transformer_mlmha", ("--mlmha-sources", "1", "--mlmha-mask-source", "2")),
    ("transformer_mlmha", ("--mlmha", "none")),
    ("capsule_transformer", ("--capsule-routing-encoder", "none")),
)

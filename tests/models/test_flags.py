"""Every flag reaches the model, and every bad value is one line before anything is built."""

from __future__ import annotations

import re

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from capsnmt.errors import ConfigurationError
from capsnmt.models.config import defaults, flag
from capsnmt.modules.head_aggregation import HeadAggregation
from tests.support import SMALL, build, parse


def routed(model: torch.nn.Module) -> dict:
    return {n: m for n, m in model.named_modules() if isinstance(m, HeadAggregation)}


# flag -> (the flags around it, a probe of the model, the value it must show)
REACHES = {
    "--head-aggregation simple": ((), lambda r: {m.routing for m in r.values()}, {"simple"}),
    "--head-aggregation em": ((), lambda r: {m.routing for m in r.values()}, {"em"}),
    "--head-aggregation-attention enc-dec,dec-self": (
        ("--head-aggregation", "em"),
        lambda r: {re.sub(r"\d", "", name) for name in r},
        {"decoder.layers..encoder_attn.out_proj", "decoder.layers..self_attn.out_proj"},
    ),
    "--head-aggregation-encoder-layers 2": (
        ("--head-aggregation", "em"),
        set,
        {"encoder.layers.1.self_attn.out_proj"},
    ),
    "--head-aggregation-decoder-layers 1-1": (
        ("--head-aggregation", "em", "--head-aggregation-attention", "dec-self"),
        set,
        {"decoder.layers.0.self_attn.out_proj"},
    ),
    "--head-capsules 8": (
        ("--head-aggregation", "em"),
        lambda r: {m.num_capsules for m in r.values()},
        {8},
    ),
    "--head-capsule-norm": (
        ("--head-aggregation", "em"),
        lambda r: {m.norm is not None for m in r.values()},
        {True},
    ),
    "--routing-iterations 5": (
        ("--head-aggregation", "em"),
        lambda r: {m.iterations for m in r.values()},
        {5},
    ),
    "--routing-backend eager": (
        ("--head-aggregation", "em"),
        lambda r: {m.backend for m in r.values()},
        {"eager"},
    ),
}


@pytest.mark.parametrize("given", REACHES)
def test_the_flag_reaches_the_model(given: str) -> None:
    around, probe, expected = REACHES[given]
    assert probe(routed(build("capsnmt_transformer", *around, *given.split()))) == expected
    assert probe(routed(build("capsnmt_transformer", *around))) != expected


def test_every_flag_of_the_plugin_has_such_a_test() -> None:
    tested = {given.split()[0] for given in REACHES} | {"--init-from"}  # test_initialisation.py
    assert tested == {flag(name) for name in defaults()}


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


def test_a_presets_value_yields_to_a_flag() -> None:
    assert not routed(build("transformer_em_routing", "--head-aggregation", "linear"))
    simple = build("transformer_em_routing", "--head-aggregation", "simple")
    assert {m.routing for m in routed(simple).values()} == {"simple"}
    assert len(routed(simple)) == 2
    decoder = build("transformer_em_routing", "--head-aggregation-attention", "dec-self")
    assert all(name.startswith("decoder") for name in routed(decoder))


EM = ("--head-aggregation", "em")
BAD = {
    "unknown aggregation": (("--head-aggregation", "max"), "'max'", "linear, simple, em"),
    "unknown attention": (
        (*EM, "--head-aggregation-attention", "enc-self,self"),
        "'self'",
        "enc-self, enc-dec, dec-self",
    ),
    "layer beyond the stack": (
        (*EM, "--head-aggregation-encoder-layers", "1,7"),
        "no layer 7",
        "layers 1 to 2",
    ),
    "layer zero": ((*EM, "--head-aggregation-encoder-layers", "0"), "no layer 0", "1 to 2"),
    "no layers": ((*EM, "--head-aggregation-encoder-layers", "low"), "'low'", "'all' or 1-based"),
    "range backwards": ((*EM, "--head-aggregation-encoder-layers", "2-1"), "'2-1'", "ranges"),
    "not a divisor": ((*EM, "--head-capsules", "5"), "5", "1, 2, 4, 8, 16"),
    "negative capsules": ((*EM, "--head-capsules", "-4"), "-4", "1, 2, 4, 8, 16"),
    "no iterations": ((*EM, "--routing-iterations", "0"), "0", "1 or more"),
    "unknown backend": ((*EM, "--routing-backend", "fast"), "'fast'", "auto, eager, compiled"),
    "capsules of nothing": (("--head-capsules", "4"), "--head-capsules 4", "no effect"),
    "iterations of nothing": (("--routing-iterations", "5"), "--routing-iterations 5", "no effect"),
    "norm of nothing": (("--head-capsule-norm",), "--head-capsule-norm", "no effect"),
    "decoder layers of an encoder": (
        (*EM, "--head-aggregation-decoder-layers", "1"),
        "--head-aggregation-decoder-layers 1",
        "no effect",
    ),
    "encoder layers of a decoder": (
        (
            *(*EM, "--head-aggregation-attention", "dec-self"),
            *("--head-aggregation-encoder-layers", "1"),
        ),
        "--head-aggregation-encoder-layers 1",
        "no effect",
    ),
    "attention that does not exist": (
        (*EM, "--head-aggregation-attention", "enc-dec", "--no-cross-attention"),
        "enc-dec",
        "--no-cross-attention",
    ),
    "xformers": (("--encoder-xformers-att-config", "{}"), "--encoder-xformers-att-config", "drop"),
    "quantised projection": ((*EM, "--quant-noise-pq", "0.1"), "--quant-noise-pq 0.1", "linear"),
    "pruned and renumbered": (
        (*EM, *("--head-aggregation-encoder-layers", "1"), *("--encoder-layers-to-keep", "0,1")),
        "--encoder-layers-to-keep",
        "--head-aggregation-encoder-layers",
    ),
}


@pytest.mark.parametrize(("flags", "names", "helps"), BAD.values(), ids=BAD)
def test_a_bad_value_is_one_line_that_names_it_and_helps(
    flags: tuple, names: str, helps: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse("capsnmt_transformer", *SMALL, *flags)
    (line,) = str(error.value).splitlines()
    assert names in line
    assert helps in line


def test_the_command_line_exits_with_the_line_and_a_library_gets_a_value_error() -> None:
    with pytest.raises(SystemExit) as error:
        parse("capsnmt_transformer", "--head-aggregation", "max")
    assert error.value.code == str(
        error.value
    )  # what the interpreter prints before it exits with 1
    assert isinstance(error.value, ValueError)


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
)

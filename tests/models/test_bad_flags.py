"""A value that cannot work is refused before any data is read, in one line that helps."""

from __future__ import annotations

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.models import compilation
from capsnmt.routing import backend
from tests.support import CAPSULES, HEADS, LAYERS, SMALL, build, parse

NO_CROSS, CROSS_SELF = "--no-cross-attention", "--cross-self-attention"
BAD = {
    "unknown aggregation": (
        ("--head-aggregation", "max"),
        "'max'",
        "linear, simple, em, gated, talking",
    ),
    "unknown attention": (
        (*HEADS, "--head-aggregation-attention", "enc-self,self"),
        "'self'",
        "enc-self, enc-dec, dec-self",
    ),
    "layer beyond the stack": (
        (*HEADS, "--head-aggregation-encoder-layers", "1,7"),
        "no layer 7",
        "layers 1 to 2",
    ),
    "layer zero": ((*HEADS, "--head-aggregation-encoder-layers", "0"), "no layer 0", "1 to 2"),
    "no layers": (
        (*HEADS, "--head-aggregation-encoder-layers", "low"),
        "'low'",
        "'all' or 1-based",
    ),
    "range backwards": ((*HEADS, "--head-aggregation-encoder-layers", "2-1"), "'2-1'", "ranges"),
    "not a divisor": ((*HEADS, "--head-capsules", "5"), "5", "1, 2, 4, 8, 16"),
    "negative capsules": ((*HEADS, "--head-capsules", "-4"), "-4", "1, 2, 4, 8, 16"),
    "no iterations": ((*HEADS, "--routing-iterations", "0"), "0", "1 to 100"),
    "unknown backend": ((*HEADS, "--routing-backend", "fast"), "'fast'", "auto, eager, compiled"),
    "unknown autocast": (("--autocast", "fp8"), "'fp8'", "none, bf16"),
    **{
        f"bf16 with {name}": (("--autocast", "bf16", name), f"{name} ", "drop one of them")
        for name in ("--amp", "--fp16", "--bf16")
    },
    **{
        f"compiled with {flags[0]}": (("--compile", *flags), flags[0], "drop one of them")
        for flags in (
            ("--encoder-layerdrop", "0.1"),
            ("--decoder-layerdrop", "0.1"),
            ("--checkpoint-activations",),
            ("--quant-noise-pq", "0.1"),
            ("--quant-noise-scalar", "0.1"),
            ("--base-layers", "1"),
            ("--criterion", "label_smoothed_cross_entropy_with_disagreement"),
        )
    },
    "capsules of nothing": (("--head-capsules", "4"), "--head-capsules 4", "no effect"),
    "iterations of nothing": (("--routing-iterations", "5"), "--routing-iterations 5", "no effect"),
    "norm of nothing": (("--head-capsule-norm",), "--head-capsule-norm", "no effect"),
    "capsules of gated heads": (
        ("--head-aggregation", "gated", "--head-capsules", "4"),
        "--head-capsules 4",
        "no effect because --head-aggregation is gated",
    ),
    "norm of talking heads": (
        ("--head-aggregation", "talking", "--head-capsule-norm"),
        "--head-capsule-norm",
        "no effect because --head-aggregation is talking",
    ),
    "iterations of gated heads": (
        ("--head-aggregation", "gated", "--routing-iterations", "2"),
        "--routing-iterations 2",
        "nothing is routed",
    ),
    "decoder layers of an encoder": (
        (*HEADS, "--head-aggregation-decoder-layers", "1"),
        "--head-aggregation-decoder-layers 1",
        "no effect",
    ),
    "encoder layers of a decoder": (
        (
            *(*HEADS, "--head-aggregation-attention", "dec-self"),
            *("--head-aggregation-encoder-layers", "1"),
        ),
        "--head-aggregation-encoder-layers 1",
        "no effect",
    ),
    "attention that does not exist": (
        (*HEADS, "--head-aggregation-attention", "enc-dec", "--no-cross-attention"),
        "enc-dec",
        "--no-cross-attention",
    ),
    "xformers": (("--encoder-xformers-att-config", "{}"), "--encoder-xformers-att-config", "drop"),
    "quantised projection": ((*HEADS, "--quant-noise-pq", "0.1"), "--quant-noise-pq 0.1", "linear"),
    "unknown layer aggregation": (("--layer-aggregation", "max"), "'max'", "transparent, dynamic"),
    "unknown side": ((*LAYERS, "--layer-aggregation-side", "top"), "'top'", "encoder, decoder"),
    "unknown capsule input": ((*LAYERS, "--layer-capsule-input", "top"), "'top'", "all, own"),
    "no divisor of the width": ((*LAYERS, "--layer-capsules", "3"), "3", "1, 2, 4, 8, 16"),
    "side of nothing": (("--layer-aggregation-side", "encoder"), "encoder", "no effect"),
    "layer capsules without routing": (
        ("--layer-aggregation", "dynamic", "--layer-capsules", "4"),
        "--layer-capsules 4",
        "no effect",
    ),
    "own input without routing": (
        ("--layer-aggregation", "linear", "--layer-capsule-input", "own"),
        "--layer-capsule-input own",
        "no effect",
    ),
    "transparent decoder": (
        ("--layer-aggregation", "transparent", "--layer-aggregation-side", "both"),
        "--layer-aggregation-side both",
        "give encoder",
    ),
    "transparent and multi-layer": (
        ("--layer-aggregation", "transparent", "--mlmha", "M-10"),
        "--mlmha M-10",
        "choose one",
    ),
    "transparent to nobody": (
        ("--layer-aggregation", "transparent", NO_CROSS),
        "--layer-aggregation transparent",
        NO_CROSS,
    ),
    "transparent joined to the decoder": (
        ("--layer-aggregation", "transparent", CROSS_SELF),
        "--layer-aggregation transparent",
        CROSS_SELF,
    ),
    "no layers to aggregate": (
        (*LAYERS, "--decoder-layers", "0"),
        "--decoder-layers 0",
        "give 1 or more",
    ),
    "no layers to connect": (
        ("--layer-aggregation", "dlcl", "--encoder-layers", "0"),
        "--encoder-layers 0",
        "give 1 or more",
    ),
    "no layers to mix for": (
        ("--layer-aggregation", "transparent", "--decoder-layers", "0"),
        "--decoder-layers 0",
        "give 1 or more",
    ),
    "layers pruned under their aggregation": (
        (*LAYERS, "--decoder-layers-to-keep", "0"),
        "--decoder-layers-to-keep",
        "--layer-aggregation",
    ),
    "layers pruned under their connection": (
        ("--layer-aggregation", "dense", "--encoder-layers-to-keep", "0"),
        "--encoder-layers-to-keep",
        "--layer-aggregation",
    ),
    "layers inserted under their aggregation": (
        (*LAYERS, "--base-layers", "1"),
        "--base-layers 1",
        "--layer-aggregation-side encoder",
    ),
    "unknown variant": (("--mlmha", "M-02"), "'M-02'", "M-00, M-01, M-10, M-11"),
    "more sources than layers": (
        ("--mlmha", "M-10", "--mlmha-sources", "3"),
        "--mlmha-sources: 3",
        "1 to 2",
    ),
    "negative sources": (("--mlmha", "M-10", "--mlmha-sources", "-1"), "-1", "1 to 2"),
    "sources of nothing": (("--mlmha-sources", "2"), "--mlmha-sources 2", "no effect"),
    "mask of nothing": (("--mlmha-mask-source", "2"), "--mlmha-mask-source 2", "no effect"),
    "mask below the sources": (
        ("--mlmha", "M-10", "--mlmha-sources", "1", "--mlmha-mask-source", "1"),
        "--mlmha-mask-source: 1",
        "2 to 2",
    ),
    "sources for nobody": (("--mlmha", "M-10", NO_CROSS), "--mlmha M-10", NO_CROSS),
    "sources joined to the decoder": (("--mlmha", "M-10", CROSS_SELF), "M-10", CROSS_SELF),
    "sources pruned": (
        ("--mlmha", "M-10", "--encoder-layers-to-keep", "0"),
        "--encoder-layers-to-keep",
        "--mlmha",
    ),
    "sources quantised": (
        ("--mlmha", "M-10", "--quant-noise-scalar", "0.5"),
        "--quant-noise-scalar 0.5",
        "--mlmha none",
    ),
    "unknown capsule routing": (
        ("--capsule-routing-encoder", "diagonal"),
        "'diagonal'",
        "vertical, horizontal, both",
    ),
    "vertical decoder": (("--capsule-routing-decoder", "vertical"), "'vertical'", "horizontal"),
    "capsule layers of nothing": (
        ("--capsule-routing-encoder-layers", "1"),
        "--capsule-routing-encoder-layers 1",
        "no effect",
    ),
    "capsule layer beyond the stack": (
        (*CAPSULES, "--capsule-routing-encoder-layers", "3"),
        "no layer 3",
        "layers 1 to 2",
    ),
    "capsules among joined keys": (
        ("--capsule-routing-decoder", "horizontal", CROSS_SELF),
        "--capsule-routing-decoder horizontal",
        CROSS_SELF,
    ),
    "pruned and renumbered": (
        (*HEADS, *("--head-aggregation-encoder-layers", "1"), *("--encoder-layers-to-keep", "0,1")),
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


def test_a_gating_network_of_another_width_than_the_encoders_is_refused() -> None:
    arch = "transformer_mlmha"
    args = parse(arch, *SMALL)
    args.mean_pool_gating_network = True  # a flag of fairseq's translation_moe
    named = "--mean-pool-gating-network-encoder-dim: 16: the encoder hands over 2 source.*give 32"
    with pytest.raises(ConfigurationError, match=named):
        ARCH_CONFIG_REGISTRY[arch](args)
    args.mean_pool_gating_network_encoder_dim = 32
    ARCH_CONFIG_REGISTRY[arch](args)


def test_a_masked_source_is_refused_in_training() -> None:
    model = build("transformer_mlmha", "--mlmha-mask-source", "1")
    with pytest.raises(ConfigurationError, match=r"--mlmha-mask-source: 1: .*--model-overrides"):
        model.train()


@pytest.mark.parametrize("name", ["compiled", "triton"])
def test_a_backend_that_this_machine_cannot_run_is_refused_in_training_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "compile_obstacle", lambda device_type: "needs a compiler")
    monkeypatch.setattr(backend, "triton_obstacle", lambda device_type: "needs a GPU")
    model = build("capsnmt_transformer", *HEADS, "--routing-backend", name)
    with pytest.raises(ConfigurationError, match=f"'{name}' needs .*: use auto or eager"):
        model.train()


def test_a_model_that_cannot_be_compiled_here_is_refused_in_training_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilation, "compile_obstacle", lambda device_type: "needs a compiler")
    model = build("capsnmt_transformer", "--compile")
    with pytest.raises(ConfigurationError, match=r"^--compile needs a compiler: train without it$"):
        model.train()

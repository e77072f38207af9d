"""What is refused as late as in training, in one line; flags: tests/frozen/data/refusals.txt."""

from __future__ import annotations

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.models import compilation
from capsnmt.routing import backend
from tests.support import HEADS, SMALL, build, parse


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
    named = (
        "--mean-pool-gating-network-encoder-dim is 16, and the encoder hands over 2 source.*give 32"
    )
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
    with pytest.raises(ConfigurationError, match=f"'{name}' needs .*; use auto or eager"):
        model.train()


def test_a_model_that_cannot_be_compiled_here_is_refused_in_training_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilation, "compile_obstacle", lambda device_type: "needs a compiler")
    model = build("capsnmt_transformer", "--compile")
    with pytest.raises(ConfigurationError, match=r"^--compile needs a compiler: train without it$"):
        model.train()

"""What is refused as late as in training, in one line; flags: tests/frozen/data/refusals.txt."""

from __future__ import annotations

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from capsnmt.cli import ConfigurationError
from capsnmt.models import compilation
from capsnmt.routing import backend
from tests.support import SMALL, build, forward, parse, sentences


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


# flags of the plain architecture -> the refusal of training, of a machine with nothing but torch
REFUSED = {
    "--mlmha M-10 --mlmha-mask-source 1": r"--mlmha-mask-source: 1: .*--model-overrides",
    "--head-aggregation em --routing-backend compiled": "'compiled' needs .*; use auto or eager",
    "--head-aggregation em --routing-backend triton": "'triton' needs .*; use auto or eager",
    "--compile": r"^--compile needs a compiler: train without it$",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_it_is_refused_in_training_only(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backend, compilation):
        monkeypatch.setattr(module, "compile_obstacle", lambda device_type: "needs a compiler")
    monkeypatch.setattr(backend, "triton_obstacle", lambda device_type: "needs a GPU")
    model = build("capsnmt_transformer", *flags.split())
    with pytest.raises(ConfigurationError, match=REFUSED[flags]):
        model.train()


def test_half_precision_parameters_are_refused_beside_autocast() -> None:
    model = build("capsnmt_transformer", "--autocast", "bf16").half()
    with pytest.raises(ConfigurationError, match=r"torch.float16; drop --fp16, .*'none'") as error:
        forward(model, sentences(5), sentences(4))
    assert "\n" not in str(error.value)

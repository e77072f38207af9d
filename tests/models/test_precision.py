"""Less precision: --autocast bf16, and matrices prepared for decoding."""

import copy
from typing import List

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from capsnmt.cli import ConfigurationError
from capsnmt.fast.linear import PreparedLinear
from capsnmt.models import precision
from capsnmt.modules import autocast
from tests.support import TASK, build, build_system, encoder_input, every_system, forward, sentences

on_bf16_machine = pytest.mark.usefixtures("bf16_machine")
BF16 = ("--autocast", "bf16")
SOURCES, TARGETS = sentences(5, 3), sentences(4, 2, seed=1)


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the mean distance of logits or scores, which have about unit variance."""
    return (ours.float() - theirs.float()).abs().mean().item()


@on_bf16_machine
@every_system
def test_padding_decoding_and_later_words_change_no_more_than_rounding(name: str) -> None:
    model = build_system(name, *BF16)
    with torch.no_grad():
        alone = [forward(model, [one], [other])[0] for one, other in zip(SOURCES, TARGETS)]
        model.encoder.autocast = model.decoder.autocast = "none"
        full = [forward(model, [one], [other])[0] for one, other in zip(SOURCES, TARGETS)]
        model.encoder.autocast = model.decoder.autocast = "bf16"
        # routing enlarges rounding errors, in some systems with random parameters very much
        allowed = 0.03 + 2 * max(map(distance, alone, full))
        for left_pad in (True, False):
            together = forward(model, SOURCES, TARGETS, left_pad)
            for row, own in zip(together, alone):
                assert distance(row[: len(own)], own) < allowed
        changed = TARGETS[0].clone()
        changed[2] ^= 1  # is another word
        (other,) = forward(model, SOURCES[:1], [changed])
        torch.testing.assert_close(other[:3], alone[0][:3], atol=0, rtol=0)

        scored = copy.deepcopy(model)
        model.make_generation_fast_(need_attn=True)
        assert model.decoder.output_projection.weight.dtype == torch.bfloat16
        (again,) = forward(model, SOURCES[:1], TARGETS[:1])
        torch.testing.assert_close(again, alone[0], atol=0, rtol=0)
        generator = SequenceGenerator([model], TASK.target_dictionary, beam_size=2, max_len_b=4)
        sample = {"net_input": encoder_input(SOURCES)}
        for one, hypotheses in zip(SOURCES, generator.generate([model], sample)):
            tokens = hypotheses[0]["tokens"]
            output = forward(scored, [one], [tokens]), None
            (scores,) = scored.get_normalized_probs(output, log_probs=True)
            expected = scores.gather(-1, tokens[:, None]).squeeze(-1)
            assert distance(hypotheses[0]["positional_scores"], expected) < allowed


@on_bf16_machine
def test_the_products_are_bf16_and_the_rest_is_not() -> None:
    model, precision = build("transformer_em_routing", *BF16), {}

    def see(name: str, output: object) -> None:
        output = output[0] if isinstance(output, tuple) else output
        precision[name] = getattr(output, "dtype", None)

    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, name=name: see(name, output))
    assert forward(model, SOURCES, TARGETS).dtype == torch.bfloat16
    norms = [name for name in precision if name.endswith("layer_norm")]
    assert len(norms) == 10
    for name in (*norms, "encoder.layers.0", "decoder.layers.1", "encoder.embed_tokens"):
        assert precision[name] == torch.float32, name
    for name in ("encoder.layers.0.fc1", "encoder.layers.0.self_attn", "decoder.layers.1.fc2"):
        assert precision[name] == torch.bfloat16, name


class Reranked(nn.Module):
    """A user's mechanism in the place of a map, with a matrix and a stack of maps in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map, self.query = nn.Linear(width, width), nn.Linear(width, width)
        self.rank = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
        self.in_fp32 = ("query", "rank")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            scale = self.rank(x.float()) + F.linear(x.float(), self.query.weight)
        return self.map(x) * scale.type_as(x)


@on_bf16_machine
def test_a_module_names_the_maps_that_stay_in_fp32() -> None:
    """Vertical routing does so, and a mechanism of the user's own."""
    model = build("capsnmt_transformer", *BF16, "--capsule-routing-encoder", "vertical")
    attentions = [layer.self_attn for layer in (model.encoder.layers[0], model.decoder.layers[1])]
    for attention in attentions:
        attention.out_proj = Reranked(16)
    with torch.no_grad():
        expected = forward(model, SOURCES, TARGETS)
        model.make_generation_fast_(need_attn=True)
        torch.testing.assert_close(forward(model, SOURCES, TARGETS), expected, atol=0, rtol=0)
    maps = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    in_fp32 = [name for name, each in maps if each.weight.dtype == torch.float32]
    kept = ["query", "rank.0", "rank.2"]
    assert {name.partition("self_attn.")[2] for name in in_fp32} == {
        "head_weights",
        *(f"out_proj.{name}" for name in kept),
    }


@on_bf16_machine
def test_double_precision_is_left_alone() -> None:
    models = [build("transformer_em_routing", *flags).double() for flags in ((), BF16)]
    models[1].make_generation_fast_(need_attn=True)
    logits = [forward(model, SOURCES, TARGETS) for model in models]
    with torch.autocast("cpu", torch.bfloat16):  # a user's
        logits.append(forward(models[0], SOURCES, TARGETS))
    for each in logits[1:]:
        torch.testing.assert_close(each, logits[0], atol=0, rtol=0)


@on_bf16_machine
def test_a_cpu_without_bf16_does_not_train_and_evaluates_in_fp32_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(autocast, "cpu_flags", lambda: ["fpu", "avx512f"])
    autocast.bf16_obstacle.cache_clear()
    precision.evaluates_in_bf16.cache_clear()
    model = build("capsnmt_transformer", *BF16)
    with caplog.at_level("WARNING"):
        logits = [forward(m, SOURCES, TARGETS) for m in (model, build("capsnmt_transformer"))]
    torch.testing.assert_close(*logits, atol=0, rtol=0)
    (warning,) = [r.getMessage() for r in caplog.records if "bf16" in r.getMessage()]
    assert "no bf16 instructions; the model is evaluated in fp32" in warning
    with pytest.raises(ConfigurationError, match=r"--autocast bf16: .*; train without it"):
        model.train()


@pytest.mark.parametrize("shape", [(3, 8, 5), (90, 130, 140), (7, 512, 520)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_prepared_map_is_the_map_in_every_size(shape: List[int], dtype: torch.dtype) -> None:
    """The sizes are computed by torch, by oneDNN, and by oneDNN with a packed matrix."""
    rows, inputs, outputs = shape
    linear = nn.Linear(inputs, outputs).to(dtype)
    expected = linear.weight.double(), linear.bias.double()
    linear.__class__ = PreparedLinear
    x = torch.randn(rows, 2, inputs).to(dtype)
    error = 2e-2 if dtype == torch.bfloat16 else 1e-5
    close = {"atol": error, "rtol": error}
    with torch.no_grad():
        for each in (linear, copy.deepcopy(linear)):
            torch.testing.assert_close(each(x).double(), F.linear(x.double(), *expected), **close)
        weight, bias = linear.parameters()
        weight.zero_()
        assert linear(x).allclose(bias)
        weight.copy_(expected[0])
        strided = x.transpose(0, 1)
        torch.testing.assert_close(linear(strided), linear(strided.contiguous()), **close)
    linear(x).sum().backward()
    summed = x.double().sum((0, 1)).expand(outputs, -1)
    torch.testing.assert_close(weight.grad.double(), summed, atol=1, rtol=5e-2)


@on_bf16_machine
@pytest.mark.parametrize(
    ("width", "flag", "precision"),
    [
        (16, "avx512_bf16", torch.float32),
        (16, "amx_bf16", torch.bfloat16),
        (512, "avx512_bf16", torch.bfloat16),
    ],
)
def test_a_narrow_model_decodes_in_bf16_only_where_that_is_faster(
    width: int, flag: str, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autocast, "cpu_flags", lambda: [flag])
    widths = (f"--{side}-embed-dim={width}" for side in ("encoder", "decoder"))
    model = build("capsnmt_transformer", "--autocast", "bf16", *widths)
    model.make_generation_fast_()
    with torch.no_grad():
        assert forward(model, SOURCES, TARGETS).dtype == precision

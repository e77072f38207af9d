"""Less precision: --autocast bf16, matrices prepared for decoding, and 8-bit integers."""

from __future__ import annotations

import copy
from typing import Any, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from torch import nn

from capsnmt.cli import ConfigurationError
from capsnmt.fast.linear import PreparedLinear, QuantizedLinear
from capsnmt.models import precision
from capsnmt.models.inference import linear_maps
from capsnmt.modules import autocast
from tests.fast.test_generator import scores_of
from tests.models.test_search import flagged
from tests.support import (
    FIRST,
    TASK,
    build,
    build_system,
    encoder_input,
    every_system,
    forward,
    sentences,
)

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
        changed[2] = FIRST + (changed[2] - FIRST + 1) % 20
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
            scores = forward(scored, [one], [tokens]).log_softmax(-1, dtype=torch.float32)[0]
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
        """Map x, scaled by what is computed of it in fp32."""
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
    maps = [name for name, each in model.named_modules() if type(each) is nn.Linear]
    kept = ["query", "rank.0", "rank.2"]
    assert {name.partition("self_attn.")[2] for name in maps} == {
        "head_weights",
        *(f"out_proj.{name}" for name in kept),
    }
    for attention in attentions:
        assert attention.out_proj.map.weight.dtype == torch.bfloat16
        for name in kept:
            assert attention.out_proj.get_submodule(name).weight.dtype == torch.float32


@on_bf16_machine
def test_double_precision_is_left_alone() -> None:
    models = [build("transformer_em_routing", *flags).double() for flags in ((), BF16)]
    models[1].make_generation_fast_(need_attn=True)
    logits = [forward(model, SOURCES, TARGETS) for model in models]
    torch.testing.assert_close(*logits, atol=0, rtol=0)


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
    with pytest.raises(ConfigurationError, match=r"--autocast is bf16, .* give --autocast none"):
        model.train()


# 16 features of a head, whose queries are scaled by a power of two
INT8 = (*("--encoder-embed-dim=32", "--decoder-embed-dim=32"), "--decoder-attention-heads=2")


@pytest.mark.parametrize("shape", [(3, 8, 5), (90, 130, 140), (7, 512, 520)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_prepared_map_is_the_map_in_every_size(shape: List[int], dtype: torch.dtype) -> None:
    """The sizes are computed by torch, by oneDNN, and by oneDNN with a packed matrix."""
    rows, inputs, outputs = shape
    torch.manual_seed(1)
    linear = nn.Linear(inputs, outputs).to(dtype)
    expected = linear.weight.double(), linear.bias.double()
    linear.__class__ = PreparedLinear
    x = torch.randn(rows, 2, inputs).to(dtype)
    error = 2e-2 if dtype == torch.bfloat16 else 1e-5
    close = {"atol": error, "rtol": error}
    with torch.no_grad():
        for each in (linear, copy.deepcopy(linear)):
            torch.testing.assert_close(each(x).double(), F.linear(x.double(), *expected), **close)
        linear.weight.zero_()
        assert linear(x).allclose(linear.bias)
        linear.weight.copy_(expected[0])
        strided = x.transpose(0, 1)
        torch.testing.assert_close(linear(strided), linear(strided.contiguous()), **close)
    linear(x).sum().backward()
    summed = x.double().sum((0, 1)).expand(outputs, -1)
    torch.testing.assert_close(linear.weight.grad.double(), summed, atol=1, rtol=5e-2)


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


@pytest.fixture
def int8_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autocast, "cpu_flags", lambda: ["avx512_vnni"])


def test_a_quantised_map_has_its_own_scale_for_every_row_and_one_for_the_input() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(64, 40)
    with torch.no_grad():
        scales = 10 ** torch.linspace(-3, 3, 40)
        linear.weight.mul_(scales.unsqueeze(1))
        linear.bias.mul_(scales)
        expected = copy.deepcopy(linear)
        linear.__class__ = QuantizedLinear
        x = torch.randn(7, 2, 64)
        for each in (linear, copy.deepcopy(linear)):
            errors = (each(x) - expected(x)).norm(dim=(0, 1)) / expected(x).norm(dim=(0, 1))
            assert 1e-3 < errors.min() < errors.max() < 0.05
        x[0, 0, 0] = 1000.0
        x[1, 0] = 1.5  # less than half of a step of 1,000 / 255
        assert linear(x)[1, 0].allclose(linear.bias)
        linear.weight.zero_()
        linear.bias.add_(1)
        assert linear(x).allclose(linear.bias)
    linear(x).sum().backward()
    assert linear.weight.grad is not None


def rounded(model: nn.Module, off: float) -> nn.Module:
    """Return a model whose layers have 8-bit numbers, and are a part of a step off them."""
    model = copy.deepcopy(model).float()
    torch.manual_seed(3)
    for module in linear_maps(model):
        if isinstance(module, nn.Linear) and module is not model.decoder.output_projection:
            steps = torch.randint(-100, 101, module.weight.shape).float()
            steps += off * torch.rand_like(steps)
            steps[:, 0] = 127
            module.weight = nn.Parameter(steps * 2**-8)
    model.make_generation_fast_()
    return model


@pytest.mark.usefixtures("int8_machine")
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--head-aggregation=em",),
        ("--layer-aggregation=em-routing", "--layer-aggregation-side=encoder"),
        ("--capsule-routing-encoder=both",),
    ],
    ids=" ".join,
)
def test_int8_translations_read_eight_bits_of_every_matrix_and_are_near(
    flags: Tuple[str, ...],
) -> None:
    """By our own search and by fairseq's."""
    in_int8 = flagged(*INT8, "--autocast=int8", *flags)
    full = flagged(*INT8, *flags)
    for build_generator in (FairseqTask.build_generator, FairseqTask.build_generator.__wrapped__):
        found, again, exact, other = (
            scores_of(build_generator, rounded(model, off))
            for model in (in_int8, full)
            for off in (0.0, 0.4)
        )
        torch.testing.assert_close(found, again, atol=0, rtol=0)
        assert (exact - other).abs().max() > 1e-3
        assert 1e-4 < (found - exact).abs().mean() < 0.1


@pytest.mark.usefixtures("int8_machine")
def test_what_cannot_compute_in_int8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(reason: str) -> Any:
        return pytest.raises(ConfigurationError, match=f"^--autocast is int8, but {reason}; ")

    model = build("capsnmt_transformer", "--autocast", "int8").eval()
    with refused("8-bit integers are for translation"):
        model.train()
    with refused("only a prepared model has 8-bit integers"):
        forward(model, SOURCES, TARGETS)
    with refused("the parameters are torch.float16, not fp32"):
        copy.deepcopy(model).half().make_generation_fast_()
    with refused("8-bit integers are for a CPU"):
        copy.deepcopy(model).to("meta").make_generation_fast_()
    prepared = copy.deepcopy(model)
    prepared.make_generation_fast_()
    with refused("the parameters are torch.bfloat16, not fp32"), torch.no_grad():
        forward(prepared.bfloat16(), SOURCES, TARGETS)
    for flags in [
        ("--mlmha=M-10",),
        ("--head-aggregation=em", "--head-aggregation-attention=enc-dec"),
        ("--adaptive-softmax-cutoff=8",),
        ("--cross-self-attention",),
        ("--no-cross-attention",),
    ]:
        with refused("the decoder has a mechanism, .*an adaptive softmax, .*--no-cross-attention"):
            build("capsnmt_transformer", "--autocast=int8", *flags).make_generation_fast_()
    monkeypatch.setattr(autocast, "cpu_flags", lambda: ["avx2"])
    with refused(r"this CPU \(.*\) has no 8-bit instructions \(VNNI\)"):
        model.make_generation_fast_()

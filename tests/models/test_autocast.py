"""``--autocast bf16``: near fp32 for every system, in training, evaluation and decoding."""

from __future__ import annotations

import copy

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from capsnmt.cli import ConfigurationError
from capsnmt.models import precision
from capsnmt.modules import autocast
from tests.support import (
    FIRST,
    PAD,
    TASK,
    batch,
    build,
    build_system,
    every_system,
    forward,
    sentences,
    shifted,
)

pytestmark = pytest.mark.usefixtures("bf16_machine")
BF16 = ("--autocast", "bf16")
SOURCES, TARGETS = sentences(5, 3), sentences(4, 2, seed=1)


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the mean distance of logits or scores, which have about unit variance."""
    return (ours.float() - theirs.float()).abs().mean().item()


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
            source, target = batch(SOURCES, left_pad), batch(TARGETS, left_pad=False)
            together = model(source, source.ne(PAD).sum(1), shifted(target))[0]
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
        source = batch(SOURCES, left_pad=True)
        sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
        for one, hypotheses in zip(SOURCES, generator.generate([model], sample)):
            tokens = hypotheses[0]["tokens"]
            scores = forward(scored, [one], [tokens]).log_softmax(-1, dtype=torch.float32)[0]
            expected = scores.gather(-1, tokens[:, None]).squeeze(-1)
            assert distance(hypotheses[0]["positional_scores"], expected) < allowed


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


def test_double_precision_is_left_alone() -> None:
    models = [build("transformer_em_routing", *flags).double() for flags in ((), BF16)]
    models[1].make_generation_fast_(need_attn=True)
    logits = [forward(model, SOURCES, TARGETS) for model in models]
    torch.testing.assert_close(*logits, atol=0, rtol=0)


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

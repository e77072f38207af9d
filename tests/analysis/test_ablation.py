"""Loss and BLEU without a head or a layer: against models that are changed by other means."""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import sacrebleu
import torch
from torch import Tensor

from capsnmt.analysis.ablation import INTACT
from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.head_ablation import HeadAblation, zeroed_head
from capsnmt.analysis.hooks import attentions
from capsnmt.analysis.layer_ablation import LayerAblation
from capsnmt.analysis.layer_bleu import (
    GENERATION,
    Translations,
    subword_marks,
    tokenised_bleu,
    translate,
)
from capsnmt.analysis.model import Options, System
from capsnmt.evaluation.tokenized import multi_bleu
from tests.analysis.systems import (
    LENGTHS,
    analysed,
    corpus,
    loss_of_each_sentence,
    loss_per_token,
    precise,
    states_of_each_sentence,
    system_of,
)
from tests.support import EVERYWHERE, TASK, forward

HEADS = {
    "transformer": ("capsnmt_transformer",),
    "em routing": ("transformer_em_routing", *EVERYWHERE, "--head-capsules", "4"),
    "layer aggregation": ("transformer_dlcl_routing", "--layer-capsules", "4"),
    "transparent": ("capsnmt_transformer", "--layer-aggregation", "transparent"),
    "capsule attention": ("capsule_transformer",),
    **{
        kind: ("capsnmt_transformer", "--head-aggregation", kind, *EVERYWHERE)
        for kind in ("gated", "talking")
    },
    **{variant: ("transformer_mlmha", "--mlmha", variant) for variant in ("M-00", "M-10", "M-11")},
}


def without_values(model: Any, role: str, layer: int, head: int) -> Any:
    """Return a copy in which the values of one head (from 0), and so its output, are zero."""
    model = copy.deepcopy(model)
    stack = model.encoder if role == "enc-self" else model.decoder
    (attention,) = [
        found for at, number, found in attentions(stack) if (at, number) == (role, layer)
    ]
    width, rows = attention.head_dim, attention.v_proj.weight.size(0)
    joined = attention.num_heads * width
    starts = [head * width]
    if getattr(attention, "variant", "") == "M-00":  # a head reads a part of every source
        starts = [source + head * width for source in range(0, rows, joined)]
    with torch.no_grad():
        for start in starts:
            attention.v_proj.weight[start : start + width] = 0
            attention.v_proj.bias[start : start + width] = 0
    return model


# With every commit each model pads on one side, and every fifth head is compared: that is each
# number of a head and each layer. At night both sides and all heads.
CASES = [
    *(
        pytest.param(flags, place % 2 == 0, 5, id=f"{name}-{'left' if place % 2 == 0 else 'right'}")
        for place, (name, flags) in enumerate(HEADS.items())
    ),
    *(
        pytest.param(flags, left, 1, id=f"{name}-{side}-all", marks=pytest.mark.nightly)
        for name, flags in HEADS.items()
        for side, left in (("left", True), ("right", False))
    ),
]


@pytest.mark.parametrize(("flags", "left_pad", "step"), CASES)
def test_it_is_the_loss_of_a_model_without_the_values_of_the_head(
    flags: Any, left_pad: bool, step: int
) -> None:
    model = precise(*flags)
    analysis = analysed(HeadAblation, system_of(model, left_pad))
    found: Dict[Any, Any] = {tuple(row[:3]): tuple(row[3:]) for row in analysis.rows()}
    sources = model.encoder.num_sources if flags[-1] in ("M-10", "M-11") else 1
    assert len(found) == 2 * 2 * 4 + 2 * 4 * sources
    intact = loss_per_token(model)
    for role, layer, head in [*found][::step]:
        expected = loss_per_token(without_values(model, role, layer, head - 1))
        assert found[role, layer, head][:2] == pytest.approx(
            (expected, expected - intact), abs=1e-6
        )
        assert abs(expected - intact) > 2e-6


def test_the_standard_error_is_that_of_a_ratio_of_sums() -> None:
    model = precise("capsnmt_transformer")
    row = analysed(HeadAblation, system_of(model)).rows()[0]
    losses = [loss_of_each_sentence(m) for m in (without_values(model, "enc-self", 1, 0), model)]
    d = [a - b for a, b in zip(*losses)]
    n = [len(line) for line in corpus()[1]]
    R = sum(d) / sum(n)
    squares = sum((x - R * tokens) ** 2 for x, tokens in zip(d, n))
    assert row[5] == pytest.approx(math.sqrt(5 / 4 * squares) / sum(n), abs=1e-6)


def test_the_model_is_afterwards_as_before() -> None:
    model = precise("transformer_mlmha")
    before = forward(model, *corpus())
    state = copy.deepcopy(model.state_dict())
    attributes = [set(vars(module)) for module in model.modules()]
    analysed(HeadAblation, system_of(model))
    analysed(LayerAblation, system_of(model))
    attention = model.encoder.layers[0].self_attn
    with contextlib.suppress(KeyboardInterrupt), zeroed_head(attention, 0):
        assert not torch.equal(forward(model, *corpus()), before)
        raise KeyboardInterrupt
    assert torch.equal(forward(model, *corpus()), before)
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


@pytest.mark.parametrize(("sentences", "used"), [(1, 1), (3, 3), (200, 5)])
def test_it_runs_on_a_sample_of_the_sentences(sentences: int, used: int) -> None:
    options = Options(ablation_sentences=sentences)
    system = system_of(precise("capsnmt_transformer"), options=options)
    numbers = [number for batch in system.sample(sentences).numbers for number in batch]
    assert len(set(numbers)) == len(numbers) == used
    analysis = analysed(HeadAblation, system)
    assert {len(losses) for losses in analysis.losses.values()} == {used}
    of_each = loss_of_each_sentence(system.model)
    expected = sorted(of_each[number] for number in numbers)
    assert sorted(analysis.losses[INTACT].tolist()) == pytest.approx(expected, abs=1e-5)
    assert math.isnan(analysis.rows()[0][-1]) == (used == 1)


def test_no_sentences_leave_it_out() -> None:
    system = system_of(precise("capsnmt_transformer"), options=Options(ablation_sentences=0))
    with pytest.raises(NotApplicableError, match="--ablation-sentences is 0"):
        HeadAblation(system)


THREE = ("--encoder-layers", "3")
NORM = ("--encoder-normalize-before",)
# model -> layers that the decoder reads
LAYERS = {
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
@pytest.mark.parametrize(("flags", "layers"), LAYERS.values(), ids=LAYERS)
def test_it_is_the_loss_of_a_model_whose_decoder_reads_a_constant(
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


TRANSLATED = {
    "transparent": ("capsnmt_transformer", "--layer-aggregation", "transparent"),
    "routing": ("transformer_dlcl_routing",),
    "multi-layer": ("transformer_mlmha",),
}


def with_references(system: System, lines: List[str]) -> System:
    """Return the system on the same sources with other references."""
    dictionary = TASK.target_dictionary
    dataset = system.dataset
    dataset.tgt = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in lines]
    dataset.tgt_sizes = torch.tensor([len(line) for line in dataset.tgt]).numpy()
    return system


@pytest.mark.parametrize("flags", TRANSLATED.values(), ids=TRANSLATED)
def test_it_is_the_bleu_of_a_model_that_reads_a_constant(
    flags: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an untrained model ends no translation by itself
    monkeypatch.setitem(GENERATION, "max_len_b", 5)
    model = precise(*flags)
    # references that are nearly its own translations, for a BLEU far from 0
    references = translate(system_of(model)).hypotheses

    def bleu_of(changed: Any) -> float:
        system = with_references(system_of(changed), references).sample(len(LENGTHS))
        return multi_bleu(translate(system).hypotheses, references, "").score

    system = with_references(system_of(model), references)
    options = Options(ablation_translations=len(LENGTHS))
    analysis = analysed(LayerAblation, replace(system, options=options))
    intact, *rows = analysis.tables()["layer_ablation_bleu"].rows
    assert intact[:5] == (None, "none", pytest.approx(bleu_of(model)), None, None)
    assert intact[2] > 50
    assert [row[:2] for row in rows] == analysis.keys()
    for layer, replacement, bleu, difference, p_value, signature in rows:
        mean = means(model)[layer]
        value = mean if replacement == "mean" else torch.zeros_like(mean)
        assert bleu == pytest.approx(bleu_of(replaced(model, layer, value)))
        assert difference == pytest.approx(bleu - intact[2])
        assert 0 < p_value <= 1
        assert "tok:none" in signature
    assert any(row[3] < -1 for row in rows)


def test_no_bleu_by_default() -> None:
    analysis = analysed(LayerAblation, system_of(precise("transformer_mlmha")))
    assert set(analysis.tables()) == {"layer_ablation"}


def test_translations_are_in_the_order_of_the_data() -> None:
    system = system_of(precise("capsnmt_transformer"))
    assert [len(line.split()) + 1 for line in translate(system).references] == [
        len(target) for target in corpus()[1]
    ]


def test_the_p_value_is_that_of_sacrebleu() -> None:
    references = [f"the cat number {n} sat on the mat" for n in range(30)]
    worse = [
        line.replace("sat on", "lay on") if n % 3 else line for n, line in enumerate(references)
    ]
    scores = tokenised_bleu([Translations(references, each) for each in (references, worse, worse)])
    bleu = sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)
    assert scores[1].score == pytest.approx(bleu.corpus_score(worse, [references]).score)
    assert scores[0].p_value is None
    assert scores[1].p_value == scores[2].p_value < 0.05


@pytest.mark.parametrize(
    ("symbols", "marks"),
    [
        (["a@@", "b"], "subword_nmt"),
        (["\u2581a", "b"], "sentencepiece"),
        (["a", "b"], None),
    ],
)
def test_the_dictionary_shows_how_words_were_segmented(symbols: Any, marks: Any) -> None:
    assert subword_marks(SimpleNamespace(symbols=symbols)) == marks

"""Loss without a head: against a model whose values of that head are zero."""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import replace
from typing import Any, Dict

import pytest
import torch

from capsnmt.analysis.ablation import INTACT
from capsnmt.analysis.base import NotApplicableError
from capsnmt.analysis.head_ablation import HeadAblation, zeroed_head
from capsnmt.analysis.observation import attentions
from capsnmt.analysis.system import Options
from tests.analysis.systems import (
    analysed,
    corpus,
    loss_of_each_sentence,
    loss_per_token,
    precise,
    system_of,
)
from tests.support import EVERYWHERE, forward

MODELS = {
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
        for place, (name, flags) in enumerate(MODELS.items())
    ),
    *(
        pytest.param(flags, left, 1, id=f"{name}-{side}-all", marks=pytest.mark.nightly)
        for name, flags in MODELS.items()
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
    model = precise("capsnmt_transformer")
    system, before = system_of(model), forward(model, *corpus())
    state = copy.deepcopy(model.state_dict())
    attributes = [set(vars(module)) for module in model.modules()]
    analysed(HeadAblation, system)
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
    system = replace(
        system_of(precise("capsnmt_transformer")), options=Options(ablation_sentences=sentences)
    )
    sample = system.sample(sentences)
    numbers = [number for batch in sample.numbers for number in batch]
    assert len(set(numbers)) == len(numbers) == used
    analysis = analysed(HeadAblation, system)
    assert {len(losses) for losses in analysis.losses.values()} == {used}
    of_each = loss_of_each_sentence(system.model)
    expected = sorted(of_each[number] for number in numbers)
    assert sorted(analysis.losses[INTACT].tolist()) == pytest.approx(expected, abs=1e-5)
    assert math.isnan(analysis.rows()[0][-1]) == (used == 1)


def test_no_sentences_leave_it_out() -> None:
    options = Options(ablation_sentences=0)
    with pytest.raises(NotApplicableError, match="--ablation-sentences is 0"):
        HeadAblation(replace(system_of(precise("capsnmt_transformer")), options=options))

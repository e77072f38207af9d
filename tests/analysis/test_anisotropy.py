"""Anisotropy against a loop over all pairs of tokens."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any, List

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from capsnmt.analysis.anisotropy import STACKS, Anisotropy
from tests.analysis.systems import analysed, precise, states_of_each_sentence, system_of

MODELS = {
    "transformer": ("capsnmt_transformer",),
    "pre-norm": ("capsnmt_transformer", "--encoder-normalize-before"),
    "em routing": ("transformer_em_routing",),
    "layer aggregation": ("transformer_dlcl_routing",),
    "multi-layer attention": ("transformer_mlmha",),
    "capsule attention": ("capsule_transformer",),
    "transparent": ("capsnmt_transformer", "--layer-aggregation", "transparent"),
}


def over_all_pairs(tokens: Tensor) -> float:
    cosines = [cosine_similarity(x, y, dim=0) for x, y in combinations(tokens, 2)]
    return float(sum(cosines) / len(cosines))


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_it_is_the_mean_cosine_of_all_pairs_of_real_tokens(flags: Any, left_pad: bool) -> None:
    model = precise(*flags)
    expected = []
    for stack in STACKS:
        layers = zip(*states_of_each_sentence(model, stack))
        for number, layer in enumerate(layers, 1 if stack == "encoder-output" else 0):
            expected.append((stack, number, over_all_pairs(torch.cat(layer))))
    rows = analysed(Anisotropy, system_of(model, left_pad)).rows()
    assert [row[:2] for row in rows] == [row[:2] for row in expected]
    assert [row[2] for row in rows] == pytest.approx([row[2] for row in expected], abs=1e-9)


def cosine_of(*batches: Tensor) -> float:
    analysis = Anisotropy(SimpleNamespace())
    for states in batches:
        real = torch.ones(states.shape[:2], dtype=torch.bool)
        batch = SimpleNamespace(source=real, target=real)
        analysis.passed(
            SimpleNamespace(batch=batch, encoder=[states], decoder=[states], encoder_output=states)
        )
    ((*_, value),) = [row for row in analysis.rows() if row[0] == "encoder"]
    return value


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (torch.tensor([[1.0, 2], [2, 4], [3, 6]]), 1),  # the same direction
        (torch.eye(3), 0),
        (torch.tensor([[1.0, 0], [-1, 0]]), -1),
        (torch.tensor([[0.0, 0], [0, 0]]), 0),  # a state of zeros has no direction
        (torch.tensor([[1.0, 2]]), float("nan")),  # one token has no pair
    ],
)
def test_known_states_have_known_values(tokens: List[Any], expected: float) -> None:
    assert cosine_of(tokens[None]) == pytest.approx(expected, nan_ok=True, abs=1e-12)
    split = cosine_of(*(token[None, None] for token in tokens))
    assert split == pytest.approx(expected, nan_ok=True, abs=1e-12)

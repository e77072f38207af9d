"""Head aggregation by routing against the papers' equations, one token at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from capsnmt.modules.head_aggregation import ROUTINGS, HeadRouting
from tests.modules.compare import assert_same, numbers, randomised
from tests.routing import oracles

WIDTH, HEADS = 8, 2


def oracle(module: HeadRouting, token: Tensor) -> Tensor:
    """Equations 5 to 12 of li2019 for the concatenated heads of one token."""
    hidden = [
        (sum(w * o for w, o in zip(row, token)) + bias).clamp(min=0)  # eq 5, the hidden layer
        for row, bias in zip(module.hidden.weight, module.hidden.bias)
    ]
    flat = [
        sum(w * o for w, o in zip(row, hidden)) + bias  # eq 6
        for row, bias in zip(module.votes.weight, module.votes.bias)
    ]
    votes = torch.stack(flat).reshape(HEADS, module.num_capsules, WIDTH // module.num_capsules)
    costs = (module.beta_a, module.beta_u) if module.routing == "em" else ()
    capsules, _ = getattr(oracles, f"{module.routing}_routing")(votes, *costs, module.iterations)
    capsules = torch.cat(list(capsules))
    return capsules if module.norm is None else module.norm(capsules)


@pytest.mark.parametrize(("capsules", "iterations"), [(0, 3), (2, 1)])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_output_and_its_gradients_equal_the_equations(
    routing: str, capsules: int, iterations: int, normalize: bool
) -> None:
    torch.manual_seed(0)
    module = HeadRouting(WIDTH, HEADS, routing, capsules, iterations, normalize=normalize)
    module, heads = randomised(module, 0.6), numbers(2, 2, WIDTH)
    expected = torch.stack([oracle(module, token) for token in heads.flatten(0, 1)])
    assert_same(module(heads), expected.view(2, 2, WIDTH), module, heads)


def test_one_head_keeps_its_votes_for_itself() -> None:
    """Limit case: with H = 1 there is no other vote to agree with, and C has no effect."""
    outputs = []
    for iterations in (1, 4):
        torch.manual_seed(1)
        module = HeadRouting(WIDTH, 1, "simple", 4, iterations)
        outputs.append(module(torch.ones(2, WIDTH)))
    torch.testing.assert_close(*outputs)


def test_votes_start_as_large_as_the_projection_they_replace() -> None:
    torch.manual_seed(0)
    module, heads = HeadRouting(256, 8, "em"), torch.randn(64, 256)
    projection = torch.nn.Linear(256, 256)
    torch.nn.init.xavier_uniform_(projection.weight)
    votes = module.votes(torch.relu(module.hidden(heads)))
    assert 0.5 < (votes.std() / projection(heads).std()).item() < 2

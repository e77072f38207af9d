"""Head aggregation against the papers' equations, one token at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from capsnmt.modules.head_aggregation import ROUTINGS, HeadRouting
from capsnmt.routing import routing_backend
from tests.routing import oracles

WIDTH, HEADS = 8, 2


def aggregation(routing: str, capsules: int, **settings: object) -> HeadRouting:
    torch.manual_seed(0)
    module = HeadRouting(WIDTH, HEADS, routing, capsules, **settings).double()
    for parameter in module.parameters():  # biases and betas start at zero: one special point
        torch.nn.init.normal_(parameter, std=0.6)
    return module


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
    return torch.cat(list(capsules))


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("capsules", [0, 2])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_output_and_its_gradients_equal_the_equations(
    routing: str, capsules: int, iterations: int
) -> None:
    module = aggregation(routing, capsules, iterations=iterations)
    heads = torch.randn(2, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    output = module(heads)
    expected = torch.stack([oracle(module, token) for token in heads.flatten(0, 1)])
    expected = expected.view_as(output)
    torch.testing.assert_close(output, expected)
    probe = torch.randn_like(output)
    learned = [heads, *module.parameters()]
    for one, other in zip(
        torch.autograd.grad((output * probe).sum(), learned),
        torch.autograd.grad((expected * probe).sum(), learned),
    ):
        torch.testing.assert_close(one, other)


def test_the_norm_is_over_the_concatenated_capsules() -> None:
    plain, normed = aggregation("em", 4), aggregation("em", 4, normalize=True)
    normed.load_state_dict(plain.state_dict(), strict=False)
    heads = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    norm = torch.nn.LayerNorm(WIDTH).double()
    norm.load_state_dict(normed.norm.state_dict())
    torch.testing.assert_close(normed(heads), norm(plain(heads)))


def test_a_token_is_aggregated_independently() -> None:
    module = aggregation("em", 0)
    heads = torch.randn(4, 3, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(module(heads)[2, 1], module(heads[2, 1]))


def test_one_head_keeps_its_votes_for_itself() -> None:
    """Limit case: with H = 1 there is no other vote to agree with, and C has no effect."""
    torch.manual_seed(0)
    outputs = []
    for iterations in (1, 4):
        module = HeadRouting(WIDTH, 1, "simple", 4, iterations)
        torch.manual_seed(1)
        module.reset_parameters()
        outputs.append(module(torch.ones(2, WIDTH)))
    torch.testing.assert_close(*outputs)


def test_votes_start_as_large_as_the_projection_they_replace() -> None:
    torch.manual_seed(0)
    module = HeadRouting(256, 8, "em")
    heads = torch.randn(64, 256)
    projection = torch.nn.Linear(256, 256)
    torch.nn.init.xavier_uniform_(projection.weight)
    votes = module.votes(torch.relu(module.hidden(heads)))
    ratio = (votes.std() / projection(heads).std()).item()
    assert 0.5 < ratio < 2


def test_the_backend_is_the_modules_own() -> None:
    module = aggregation("em", 0, backend="eager")
    heads = torch.randn(2, 2, WIDTH, dtype=torch.float64)
    with routing_backend("auto"):
        expected = module(heads)
    module.backend = "no such backend"
    with pytest.raises(ValueError, match="no such backend"):
        module(heads)
    assert expected.isfinite().all()


@pytest.mark.parametrize(
    ("routing", "capsules", "message"), [("max", 0, "'max'.*simple, em"), ("em", 3, "3 capsules")]
)
def test_a_bad_setting_is_named(routing: str, capsules: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadRouting(WIDTH, HEADS, routing, capsules)

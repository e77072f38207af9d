"""Results do not depend on leading dims, on padding and what it holds, or on other rows."""

from __future__ import annotations

import pytest
import torch

from capsnmt import routing

from .operators import betas, random

F64 = torch.float64


@pytest.mark.parametrize("leading", [(), (1,), (6,), (2, 3), (1, 2, 1, 3)])
def test_any_leading_dims_give_the_same_capsules(leading):
    votes = random(*leading, 3, 4, 2, dtype=F64)
    beta = betas(votes)
    activation = random(*leading, 3, 4, dtype=F64).sigmoid()
    flat_votes, flat_activation = votes.reshape(-1, 3, 4, 2), activation.reshape(-1, 3, 4)
    one_by_one = [
        torch.stack(
            [routing.em_routing(v, *beta, 3, a) for v, a in zip(flat_votes, flat_activation)]
        ),
        torch.stack([routing.simple_routing(v, 3) for v in flat_votes]),
        torch.stack([routing.dynamic_routing(v, 3)[0] for v in flat_votes]),
    ]
    together = [
        routing.em_routing(votes, *beta, 3, activation),
        routing.simple_routing(votes, 3),
        routing.dynamic_routing(votes, 3)[0],
    ]
    for result, single in zip(together, one_by_one):
        assert result.shape == (*leading, 4, 2)
        torch.testing.assert_close(result.reshape(single.shape), single)


def test_masked_capsules_take_no_part_whatever_they_hold():
    votes = random(2, 5, 4, 3, dtype=F64)
    expected, expected_logits = routing.dynamic_routing(votes[:, 1:, :3], 3)
    votes[:, 0], votes[:, :, 3] = float("nan"), float("inf")
    inputs, outputs = torch.ones(2, 5).bool(), torch.ones(2, 4).bool()
    inputs[:, 0], outputs[:, 3] = False, False
    votes.requires_grad_()
    capsules, logits = routing.dynamic_routing(votes, 3, inputs, outputs)
    torch.testing.assert_close(capsules[:, :3], expected)
    torch.testing.assert_close(logits[:, 1:, :3], expected_logits)
    assert torch.equal(capsules[:, 3], torch.zeros(2, 3, dtype=F64))
    assert not logits[:, 0].any()
    assert not logits[:, :, 3].any()
    (gradient,) = torch.autograd.grad(capsules.sum() + logits.sum(), votes)
    assert not gradient[:, 0].any()
    assert not gradient[:, :, 3].any()


@pytest.mark.parametrize("padding", [1, 3])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_on_either_side_changes_nothing(side, padding, causal):
    heads, length = 3, 4
    scores = random(1, heads, length, length, dtype=F64)
    real = slice(padding, None) if side == "left" else slice(length)
    padded = torch.full((1, heads, length + padding, length + padding), float("nan"), dtype=F64)
    padded[:, :, real, real] = scores
    mask = torch.zeros(1, length + padding, dtype=torch.bool)
    mask[:, real] = True

    capsules, logits = routing.vertical_routing(padded, 3, mask, mask)
    alone, alone_logits = routing.vertical_routing(scores, 3)
    torch.testing.assert_close(capsules[:, real, real], alone)
    torch.testing.assert_close(logits.sum(-1), alone_logits.sum(-1))
    rows = routing.horizontal_routing(padded, 3, mask, mask, causal)
    torch.testing.assert_close(
        rows[:, :, real, real], routing.horizontal_routing(scores, 3, causal=causal)
    )
    outside = ~(mask[:, :, None] & mask[:, None, :])
    assert not capsules[outside].any()
    assert not rows[outside.unsqueeze(1).expand_as(rows)].any()


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("padded", [None, slice(0, 2), slice(2, 4), slice(4, 5)])
@pytest.mark.parametrize("causal", [False, True])
def test_the_newest_row_alone_is_the_last_of_all_rows(causal, padded, iterations):
    scores = random(2, 3, 5, 5, dtype=F64)
    mask = None
    if padded is not None:
        mask = torch.ones(2, 5, dtype=torch.bool)
        mask[0, padded] = False
    arguments = (scores, iterations, mask, mask, causal)
    with routing.record_routing() as records:
        rows = routing.horizontal_routing(*arguments)
        newest = routing.horizontal_routing(*arguments, newest_only=True)
    torch.testing.assert_close(newest, rows[:, :, -1:])
    assert len(records[1].coefficients) == iterations
    for one, all_rows in zip(records[1].coefficients, records[0].coefficients):
        torch.testing.assert_close(one, all_rows[:, -1:])

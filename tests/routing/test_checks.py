"""Each bad argument is one line that names it and what is allowed."""

from __future__ import annotations

import pytest
import torch

from capsnmt import routing

from .operators import OPERATORS

votes = torch.zeros(2, 3, 4, 5)
ones = torch.ones(4)


@pytest.mark.parametrize("iterations", [0, -1, 2.5, True, "3", None])
@pytest.mark.parametrize("name", OPERATORS)
def test_iterations_must_be_a_positive_whole_number(name, iterations):
    with pytest.raises(ValueError, match=r"whole number >= 1, not"):
        OPERATORS[name](votes, iterations)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: routing.simple_routing(torch.zeros(3, 4)), r"votes must be .* not \[3, 4\]"),
        (lambda: routing.simple_routing(votes[:, :0]), r"I, N, D >= 1, not \[2, 0, 4, 5\]"),
        (lambda: routing.simple_routing(votes.long()), r"votes .* floating dtype, not torch.int64"),
        (lambda: routing.em_routing(votes, ones[1:], ones), r"beta_a must be \[N\] = \[4\]"),
        (
            lambda: routing.em_routing(votes, ones, ones, variance_floor=0.0),
            "variance_floor must be a number above 0, not 0.0",
        ),
        (lambda: routing.em_routing(votes, ones, ones.long()), r"beta_u must have a floating"),
        (
            lambda: routing.em_routing(votes, ones, ones, 3, torch.ones(2, 4)),
            r"input_activation must be .*\[2, 3\] or .*\[2, 3, 4\] here, not \[2, 4\]",
        ),
        (
            lambda: routing.em_routing(votes, ones, ones, 3, torch.ones(2, 3).bool()),
            r"input_activation must have a floating dtype",
        ),
        (
            lambda: routing.dynamic_routing(votes, 3, torch.ones(2, 4).bool()),
            r"input_mask must be \[..., I\] = \[2, 3\] here, not \[2, 4\]",
        ),
        (
            lambda: routing.dynamic_routing(votes, 3, None, torch.ones(2, 4)),
            r"output_mask must be boolean, true = real, not torch.float32; use .bool\(\)",
        ),
        (lambda: routing.vertical_routing(votes[0]), r"scores must be \[B, H, L, K\]"),
        (
            lambda: routing.vertical_routing(votes, 3, torch.ones(2, 5).bool()),
            r"query_mask must be \[B, L\] = \[2, 4\] here",
        ),
        (
            lambda: routing.horizontal_routing(votes, 3, None, torch.ones(2, 4).bool()),
            r"key_mask must be \[B, K\] = \[2, 5\] here",
        ),
        (
            lambda: routing.simple_routing(votes, backend="fused"),
            r"routing backend 'fused' is unknown; use one of auto, eager, compiled",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)

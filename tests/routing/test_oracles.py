"""Every operator equals the paper's nested loops, forward and backward, in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capsnmt import routing

from . import oracles
from .operators import random

TIGHT = {"rtol": 1e-9, "atol": 1e-11}
few = settings(max_examples=15, deadline=None, derandomize=True)
size = st.integers(1, 4)
iterations = st.integers(1, 4)
seeds = st.integers(0, 2**31)
maybe_mask = st.sampled_from(["none", "left", "right", "holes", "all"])


def mask(kind: str, length: int):
    """A padding mask [length], true = real; None for none."""
    if kind == "none":
        return None
    real = torch.ones(length, dtype=torch.bool)
    if kind == "left":
        real[: (length + 1) // 2] = False
    elif kind == "right":
        real[length // 2 + 1 :] = False
    elif kind == "holes":
        real[::2] = False
    else:
        real[:] = False
    return real


def batched(maybe):
    return None if maybe is None else maybe.unsqueeze(0)


def leaves(*tensors):
    return [None if t is None else t.clone().requires_grad_() for t in tensors]


def assert_same(operator, oracle, inputs):
    """Compare results and the gradients of one random weighted sum of all results."""
    results, gradients = [], []
    for function in (operator, oracle):
        arguments = leaves(*inputs)
        outcome = function(*arguments)
        outcome = outcome if isinstance(outcome, tuple) else (outcome,)
        weighted = sum((r * random(*r.shape, seed=7, dtype=r.dtype)).sum() for r in outcome)
        results.append(outcome)
        gradients.append(
            torch.autograd.grad(
                weighted, [a for a in arguments if a is not None], allow_unused=True
            )
        )
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, **TIGHT)
    for ours, theirs in zip(*gradients):
        ours = torch.zeros(()) if ours is None else ours
        theirs = torch.zeros_like(ours) if theirs is None else theirs
        torch.testing.assert_close(ours, theirs, **TIGHT)


@few
@given(size, size, size, iterations, seeds, st.sampled_from([0.3, 3.0]))
def test_simple_routing_equals_li2019_algorithm_1(I, N, D, T, seed, scale):
    votes = scale * random(I, N, D, seed=seed, dtype=torch.float64)
    assert_same(
        lambda v: routing.simple_routing(v, T), lambda v: oracles.simple_routing(v, T)[0], [votes]
    )


@few
@given(size, size, size, iterations, seeds, st.sampled_from([0.3, 3.0]))
def test_inverted_routing_equals_tsai2020(I, N, D, T, seed, scale):
    votes = scale * random(I, N, D, seed=seed, dtype=torch.float64)
    assert_same(
        lambda v: routing.inverted_routing(v, T),
        lambda v: oracles.inverted_routing(v, T)[0],
        [votes],
    )


@few
@given(size, size, size, iterations, seeds, maybe_mask, maybe_mask)
def test_dynamic_routing_equals_dou2019_algorithm_1(I, N, D, T, seed, inputs, outputs):
    votes = random(I, N, D, seed=seed, dtype=torch.float64)
    masks = mask(inputs, I), mask(outputs, N)
    assert_same(
        lambda v: routing.dynamic_routing(v, T, *masks),
        lambda v: oracles.dynamic_routing(v, T, *masks)[:2],
        [votes],
    )


@few
@given(size, size, size, iterations, seeds, st.sampled_from([0, 1, 2]))
def test_em_routing_equals_li2019_algorithm_2(I, N, D, T, seed, activation_dims):
    votes = random(I, N, D, seed=seed, dtype=torch.float64)
    beta_a, beta_u = random(2, N, seed=seed + 1, dtype=torch.float64)
    activation = None
    if activation_dims:
        shape = (I, N)[:activation_dims]
        activation = 0.05 + 0.9 * random(*shape, seed=seed + 2, dtype=torch.float64).sigmoid()
    assert_same(
        lambda v, a, u, act: routing.em_routing(v, a, u, T, act),
        lambda v, a, u, act: oracles.em_routing(v, a, u, T, act)[0],
        [votes, beta_a, beta_u, activation],
    )


@few
@given(size, size, size, iterations, seeds, maybe_mask, maybe_mask)
def test_vertical_routing_equals_duan2020_algorithm_2(H, L, K, T, seed, queries, keys):
    scores = random(H, L, K, seed=seed, dtype=torch.float64)
    query_mask, key_mask = mask(queries, L), mask(keys, K)

    def operator(e):
        capsules, logits = routing.vertical_routing(
            e.unsqueeze(0), T, batched(query_mask), batched(key_mask)
        )
        return capsules.squeeze(0), logits.squeeze(0)

    assert_same(operator, lambda e: oracles.vertical_routing(e, T, query_mask, key_mask), [scores])


@few
@given(size, size, size, iterations, seeds, maybe_mask, maybe_mask, st.booleans())
def test_horizontal_routing_equals_the_loop_of_duan2020_algorithm_3(
    H, L, K, T, seed, queries, keys, causal
):
    scores = random(H, L, K, seed=seed, dtype=torch.float64)
    query_mask, key_mask = mask(queries, L), mask(keys, K)

    def operator(e):
        return routing.horizontal_routing(
            e.unsqueeze(0), T, batched(query_mask), batched(key_mask), causal
        ).squeeze(0)

    def oracle(e):
        return oracles.horizontal_routing(e, T, query_mask, key_mask, causal)

    assert_same(operator, oracle, [scores])


@pytest.mark.parametrize("length", [0.0, 1e-20, 1e-3, 1.0, 1e4])
def test_squash_has_the_printed_length_and_gradient(length):
    direction = torch.tensor([0.6, 0.8], dtype=torch.float64)
    s = (length * direction).requires_grad_()
    out = routing.squash(s)
    torch.testing.assert_close(out.detach(), length**2 / (1 + length**2) * direction)
    jacobian = torch.autograd.functional.jacobian(routing.squash, s.detach())
    radial = 2 * length / (1 + length**2) ** 2  # d/dx of x^2 / (1 + x^2)
    torch.testing.assert_close(direction @ jacobian @ direction, torch.tensor(radial).double())


def test_recorded_coefficients_equal_the_oracles():
    votes = random(3, 4, 2, dtype=torch.float64)
    beta_a, beta_u = random(2, 4, seed=1, dtype=torch.float64)
    with routing.record_routing() as records:
        routing.simple_routing(votes, 3)
        routing.inverted_routing(votes, 3)
        routing.dynamic_routing(votes, 3, torch.tensor([True, False, True]))
        routing.em_routing(votes, beta_a, beta_u, 3)
    expected = [
        oracles.simple_routing(votes, 3)[1],
        oracles.inverted_routing(votes, 3)[1],
        oracles.dynamic_routing(votes, 3, torch.tensor([True, False, True]))[2],
        oracles.em_routing(votes, beta_a, beta_u, 3)[1],
    ]
    for record, trace in zip(records, expected):
        torch.testing.assert_close(torch.stack(record.coefficients), torch.stack(trace), **TIGHT)

"""Every operator equals its paper's nested loops, forward and backward, whatever surrounds it."""

import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capsnmt import routing
from capsnmt.routing import record_routing, simple_routing

from . import oracles
from .operators import NAMES, OPERATORS, random, run_with_gradient

F64 = torch.float64
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
few = settings(max_examples=40)
size = st.integers(1, 4)
CUBES = ("vertical_routing", "horizontal_routing")  # of scores, with masks of queries and keys


def masks(length: int):
    """No padding mask, or any ``[length]``, true = real."""
    drawn = st.lists(st.booleans(), min_size=length, max_size=length)
    return st.none() | drawn.map(torch.tensor)


def draw_arguments(draw, name: str, shape, seed: int):
    """What follows the votes, or the cube, of one example: tensors, and other arguments."""
    I, N, D = shape
    if name == "em_routing":
        costs = [*random(2, N, seed=seed + 1, dtype=F64)]
        dims = draw(st.sampled_from([0, 1, 2]))
        if dims:
            activation = random(*(I, N)[:dims], seed=seed + 2, dtype=F64).sigmoid()
            return [*costs, 0.05 + 0.9 * activation], ()
        return costs, ()
    if name == "dynamic_routing":
        return [], (draw(masks(I)), draw(masks(N)))
    if name in CUBES:
        causal = (draw(st.booleans()),) if name == "horizontal_routing" else ()
        return [], (draw(masks(N)), draw(masks(D)), *causal)
    return [], ()


def called(function, name: str, T: int, others, votes, *tensors):
    """Call an operator or its oracle, which has no leading dims, not even the cube's."""
    if name == "em_routing":
        return function(votes, *tensors[:2], T, *tensors[2:])
    if function is getattr(oracles, name) or name not in CUBES:
        return function(votes, T, *others)
    batched = [x.unsqueeze(0) if torch.is_tensor(x) else x for x in others]
    results = function(votes.unsqueeze(0), T, *batched)
    return results.squeeze(0) if torch.is_tensor(results) else [x.squeeze(0) for x in results]


@few
@given(size, size, size, st.integers(1, 4), st.integers(0, 2**31), st.data())
@pytest.mark.parametrize("name", NAMES)
def test_results_gradients_and_coefficients_equal_the_loops(name, I, N, D, T, seed, data):
    """The gradients are those of one random weighted sum; what is masked may be infinite."""
    scale = data.draw(st.sampled_from([0.3, 1.0, 3.0]))
    votes = scale * random(I, N, D, seed=seed, dtype=F64)
    tensors, others = draw_arguments(data.draw, name, (I, N, D), seed)
    spoilt, first = votes.clone(), int(name in CUBES)  # of a cube, queries and keys are masked
    for dim, real in enumerate(others[:2], first):
        if real is not None:
            spoilt.movedim(dim, 0)[~real] = data.draw(st.sampled_from([math.nan, math.inf]))
    found = []
    for function, own in ((getattr(routing, name), spoilt), (getattr(oracles, name), votes)):
        leaves = [x.clone().requires_grad_() for x in (own, *tensors)]
        with record_routing() as records:
            results = called(function, name, T, others, *leaves)
        results = [results] if torch.is_tensor(results) else [*results]
        trace = results.pop() if isinstance(results[-1], list) else None
        weighted = sum((x * random(*x.shape, seed=7, dtype=F64)).sum() for x in results)
        unused = sum(0 * x.sum() for x in leaves)  # masks may hide all that is read
        found.append((results, torch.autograd.grad(weighted + unused, leaves)))
        if name not in CUBES:
            found[-1] += (trace or records[0].coefficients,)
    torch.testing.assert_close(*found, **TIGHT)


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


# --- what is recorded


@pytest.mark.parametrize("name", OPERATORS)
def test_each_records_one_distribution_an_input_and_iteration_and_computes_the_same(name):
    votes = random(2, 3, 4, 4)
    expected = run_with_gradient(OPERATORS[name], votes, 3)
    with record_routing() as records:
        found = run_with_gradient(OPERATORS[name], votes, 3)
    torch.testing.assert_close(found, expected)
    (record,) = records
    horizontal = "horizontal" in name
    assert record.operator == name.split(",")[0]
    assert len(record.coefficients) == 3
    for C in record.coefficients:
        assert not C.requires_grad
        assert C.shape == ((2, 4, 4, 3) if horizontal else (2, 3, 4))
        mass = C.sum(-1)
        assert torch.isclose(mass, mass.round(), atol=1e-6).all()  # 1, or 0 where masked
        if horizontal:
            assert not C[:, 0, 1:].any()  # the first partial routing sees position 0 only
        if "masked" not in name and not horizontal:
            torch.testing.assert_close(mass, torch.ones(2, 3))


def test_the_innermost_block_records_the_calls_in_it_also_before_an_exception():
    votes = random(2, 5, 3, 4, 1)
    with pytest.raises(KeyError), record_routing() as outer:  # noqa: PT012
        simple_routing(votes)
        with record_routing() as inner:
            simple_routing(votes[0, 0])
        simple_routing(votes[0])
        raise KeyError
    simple_routing(votes)
    shapes = [[record.coefficients[0].shape for record in records] for records in (outer, inner)]
    assert shapes == [[(2, 5, 3, 4), (5, 3, 4)], [(3, 4)]]


def test_neither_a_call_that_fails_nor_another_thread_is_recorded():
    with record_routing() as records:
        with pytest.raises(ValueError, match="iterations"):
            simple_routing(random(3, 4, 1), 0)
        thread = threading.Thread(target=simple_routing, args=(random(3, 4, 1),))
        thread.start()
        thread.join()
    assert records == []

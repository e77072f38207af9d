"""``record_routing`` sees every call inside its block, and nothing after it."""

from __future__ import annotations

import threading

import pytest
import torch

from capsnmt import routing
from capsnmt.routing import record_routing, simple_routing

from .operators import OPERATORS, names, random, run_with_gradient


def test_the_table_of_operators_lists_all_that_are_exported():
    exported = {name for name in routing.__all__ if name.endswith("_routing")}
    assert set(names()) == exported - {"record_routing"}


@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_records_one_distribution_an_input_and_iteration(name):
    votes = random(2, 3, 4, 4).requires_grad_()
    with record_routing() as records:
        OPERATORS[name](votes, 3)
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


@pytest.mark.parametrize("name", OPERATORS)
def test_recording_changes_no_result(name):
    votes = random(2, 3, 4, 4)
    expected = run_with_gradient(OPERATORS[name], votes, 3)
    with record_routing():
        found = run_with_gradient(OPERATORS[name], votes, 3)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)


def test_leading_dims_are_kept():
    with record_routing() as records:
        simple_routing(random(2, 5, 3, 4, 1), 2)
        simple_routing(random(3, 4, 1), 2)
    assert [record.coefficients[0].shape for record in records] == [(2, 5, 3, 4), (3, 4)]


def test_an_inner_block_records_for_the_outer_one_too():
    votes = random(3, 4, 1)
    with record_routing() as outer:
        simple_routing(votes)
        with record_routing() as inner:
            simple_routing(votes)
        simple_routing(votes)
    assert (len(outer), len(inner)) == (3, 1)


def test_recording_ends_with_the_block_also_by_an_exception():
    votes = random(3, 4, 1)
    with pytest.raises(KeyError), record_routing() as records:  # noqa: PT012
        simple_routing(votes)
        raise KeyError
    simple_routing(votes)
    assert len(records) == 1


def test_a_call_that_fails_is_not_recorded():
    with record_routing() as records, pytest.raises(ValueError, match="iterations"):
        simple_routing(random(3, 4, 1), 0)
    assert records == []


def test_another_thread_is_not_recorded():
    with record_routing() as records:
        thread = threading.Thread(target=simple_routing, args=(random(3, 4, 1),))
        thread.start()
        thread.join()
    assert records == []

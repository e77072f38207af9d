"""The backend is chosen in one place, is never left on, and never changes a result."""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace

import pytest
import torch

from capsnmt import routing
from capsnmt.routing import backend, fused, operator, simple
from tests.counting import kept
from tests.support import needs_compiler

from .operators import OPERATORS, random, run_with_gradient


@pytest.fixture
def compilations(monkeypatch):
    """Count compiled runs, as eager ones, on a host that can compile."""
    calls = []

    def record(kernel):
        def run(*tensors, **options):
            calls.append(kernel.__name__)
            return kernel(*tensors, **options)

        return run

    monkeypatch.setattr(operator, "compiled_kernel", record)
    for module in (backend, operator):
        monkeypatch.setattr(module, "compile_obstacle", lambda device_type: None)
    monkeypatch.setattr(operator, "takes_cpp", lambda name, votes: False)
    monkeypatch.setattr(operator, "_failed", set())
    monkeypatch.setattr(simple.OPERATOR, "compile_minimum", 24)
    return calls


def train(votes, **options):
    return routing.simple_routing(votes.requires_grad_(), 2, **options)


def test_auto_compiles_big_calls_of_training_only(compilations):
    train(random(2, 3, 4, 1))
    assert compilations == ["simple_kernel"]
    train(random(1, 3, 4, 1))  # small
    routing.simple_routing(random(2, 3, 4, 1))  # no gradient wanted
    with torch.no_grad():
        train(random(2, 3, 4, 1))
    assert compilations == ["simple_kernel"]


def test_the_argument_chooses_and_recording_runs_eagerly(compilations):
    train(random(2, 3, 4, 1), backend="eager")
    with routing.record_routing() as records:
        train(random(2, 3, 4, 1), backend="compiled")
    assert len(records) == 1
    assert compilations == []
    routing.simple_routing(random(1, 1, 1, 1), backend="compiled")
    assert compilations == ["simple_kernel"]


def broken(kernel):
    def run(*tensors, **options):
        raise OSError("no compiler\nand a long trace")

    return run


def test_what_does_not_compile_is_an_error_and_auto_falls_back_with_one_warning(
    compilations, monkeypatch
):
    monkeypatch.setattr(operator, "compiled_kernel", broken)
    votes = random(2, 3, 4, 1)
    with pytest.warns(UserWarning, match=r"'compiled' failed on simple_kernel \(no compiler\)"):
        result = train(votes)
    assert torch.equal(result, train(votes, backend="eager"))
    with pytest.raises(RuntimeError, match=r"'compiled' failed on simple_kernel \(no compiler\)"):
        train(votes, backend="compiled")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(result, train(votes))


@pytest.mark.parametrize("votes", [random(4, 8, 512, 1).double(), random(4, 9, 513, 3)])
def test_what_the_fused_kernels_do_not_cover_runs_without_them(votes, monkeypatch):
    """Numbers of fp64, and more than 32,768 votes a token: 16 x 1,024 x 4, padded."""
    monkeypatch.setattr(backend, "triton_obstacle", lambda device_type: None)
    found = routing.simple_routing(votes, 2, backend="triton")
    assert torch.equal(found, routing.simple_routing(votes, 2, backend="eager"))


def test_a_fused_kernel_that_fails_is_one_line_with_the_fix(monkeypatch):
    """The forward kernel may build and the backward kernel may not."""

    def fail(*tensors, **options):
        raise OSError("no assembler\nand a long trace")

    monkeypatch.setattr(backend, "triton_obstacle", lambda device_type: None)
    for forward, part in ((fail, "simple_kernel"), (simple.OPERATOR.precise, "the gradient")):
        launchers = SimpleNamespace(forward=forward, backward=fail)
        monkeypatch.setattr(fused.FusedKernel, "launch", lambda self, chosen=launchers: chosen)
        with pytest.raises(RuntimeError, match=rf"on {part} \(no assembler\); use auto or eager"):
            train(random(2, 3, 4, 2), backend="triton").sum().backward()


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", OPERATORS)
def test_blocks_change_neither_values_nor_gradients(name, rows, monkeypatch):
    votes = random(rows, 3, 4, 2, dtype=torch.float64)
    expected = run_with_gradient(OPERATORS[name], votes, 3, backend="eager")
    monkeypatch.setattr(operator, "BLOCK_SIZE", 2 * 24)  # two of the rows
    found = run_with_gradient(OPERATORS[name], votes, 3, backend="eager")
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    def run_again(run, tensors, rows, options):
        return operator.run_again(run, *tensors, **options)

    monkeypatch.setattr(operator, "run_in_blocks", run_again)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_that_runs_again_has_the_same_gradients(name, as_on_a_gpu, request):
    """It keeps the votes, masks and parameters alone, also where second derivatives are wanted."""

    def differentiated():
        votes = random(3, 3, 4, 2, dtype=torch.float64).requires_grad_()
        with kept() as tensors:
            result = OPERATORS[name](votes, 2, backend="eager")
        number = sum(tensor.numel() for tensor in tensors)
        (first,) = torch.autograd.grad(result.square().sum(), votes, create_graph=True)
        return number, result, first, *torch.autograd.grad(first.square().sum(), votes)

    elements, *found = differentiated()
    request.getfixturevalue("monkeypatch").undo()
    elements_without, *expected = differentiated()
    torch.testing.assert_close(found, expected)
    assert elements <= 2 * 72 < elements_without


COMPILED = [name for name in OPERATORS if "," not in name]


@pytest.fixture
def trace(monkeypatch):
    """Return a function that lets ``compiled`` generate no code, in an empty compiler."""

    def choose(generator):
        def traced(kernel):
            return torch.compile(kernel, dynamic=True, fullgraph=True, backend=generator)

        monkeypatch.setattr(operator, "compiled_kernel", functools.cache(traced))
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()

    yield choose
    torch.compiler.reset()


def assert_compiled_equals_eager(name, rows, D=2, **tolerances):
    votes = random(rows, 3, 5, D, seed=rows)
    found = run_with_gradient(OPERATORS[name], votes, 2, backend="compiled")
    expected = run_with_gradient(OPERATORS[name], votes, 2, backend="eager")
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, **tolerances)


@needs_compiler
def test_one_graph_without_breaks_serves_every_batch_size_of_an_operator(trace):
    """The limit of variants is each operator's own, or the second would exceed it."""
    trace("eager")
    counters = torch._dynamo.utils.counters
    with torch._dynamo.config.patch(recompile_limit=1):
        for count, name in enumerate(COMPILED[:3], start=1):  # at night, below: all of them
            for rows in (7, 12):
                assert_compiled_equals_eager(name, rows)
            assert counters["stats"]["unique_graphs"] == count, name
    assert not counters["graph_break"]


@needs_compiler
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "simple_routing" else [pytest.mark.nightly])
        for name in COMPILED
    ],
)
def test_one_graph_of_the_gradient_serves_every_batch_size(name, trace):
    trace("aot_eager")
    for rows in (7, 12, 4):
        assert_compiled_equals_eager(name, rows)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.nightly  # the code that torch generates; with every commit the graphs above
@needs_compiler
def test_compiled_equals_eager():
    assert_compiled_equals_eager("simple_routing", 7, D=1, rtol=1e-4, atol=1e-5)

"""The backend is chosen in one place, is never left on, and never changes a result."""

import functools
import warnings

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from capsnmt import routing
from capsnmt.routing import backend, operator, simple
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

    monkeypatch.setattr(operator, "compiled_function", record)
    for module in (backend, operator):
        monkeypatch.setattr(module, "compile_obstacle", lambda device_type: None)
    monkeypatch.setattr(simple.OPERATOR, "kernels", [])
    monkeypatch.setattr(operator, "_failed", set())
    monkeypatch.setattr(operator, "COMPILE_MINIMUM", 24)
    return calls


def test_the_switch_of_what_is_faster_is_0_or_1(monkeypatch):
    monkeypatch.setenv(backend.SWITCH, "false")
    with pytest.raises(ValueError, match="CAPSNMT_FAST is 'false'; give 0"):
        backend.add_kernels.__wrapped__()


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


def test_the_argument_chooses_and_what_is_watched_runs_eagerly(compilations):
    train(random(2, 3, 4, 1), backend="eager")
    with routing.record_routing() as records:
        train(random(2, 3, 4, 1), backend="compiled")
    assert len(records) == 1
    with FlopCounterMode(display=False):  # torch must see every operation
        for name in ("auto", "compiled"):
            train(random(2, 3, 4, 1), backend=name)
    assert compilations == []
    routing.simple_routing(random(1, 1, 1, 1), backend="compiled")
    assert compilations == ["simple_kernel"]


def fail(*tensors, **options):
    raise OSError("no compiler\nand a long trace")


def test_what_does_not_compile_is_an_error_and_auto_falls_back_with_one_warning(
    compilations, monkeypatch
):
    monkeypatch.setattr(operator, "compiled_function", lambda kernel: fail)
    votes = random(2, 3, 4, 1)
    with pytest.warns(UserWarning, match=r"'compiled' failed on simple_kernel \(no compiler\)"):
        result = train(votes)
    assert torch.equal(result, train(votes, backend="eager"))
    with pytest.raises(RuntimeError, match=r"'compiled' failed on simple_kernel \(no compiler\)"):
        train(votes, backend="compiled")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(result, train(votes))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", OPERATORS)
def test_blocks_change_neither_values_nor_gradients(name, rows, monkeypatch):
    votes = random(rows, 3, 4, 2, dtype=torch.float64)
    expected = run_with_gradient(OPERATORS[name], votes, 3, backend="eager")
    monkeypatch.setattr(operator, "BLOCK_SIZE", 2 * 24)  # two of the rows
    found = run_with_gradient(OPERATORS[name], votes, 3, backend="eager")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_kernel_that_runs_again_has_the_same_gradients(name, monkeypatch):
    """It keeps the votes, masks and parameters alone, also where second derivatives are wanted."""

    def as_on_a_gpu(run, tensors, rows, options):
        return operator.run_again(run, *tensors, **options)

    def differentiated():
        votes = random(3, 3, 4, 2, dtype=torch.float64).requires_grad_()
        with kept() as tensors:
            result = OPERATORS[name](votes, 2, backend="eager")
        number = sum(tensor.numel() for tensor in tensors)
        (first,) = torch.autograd.grad(result.square().sum(), votes, create_graph=True)
        return number, result, first, *torch.autograd.grad(first.square().sum(), votes)

    elements_without, *expected = differentiated()
    monkeypatch.setattr(operator, "run_in_blocks", as_on_a_gpu)
    elements, *found = differentiated()
    torch.testing.assert_close(found, expected)
    assert elements <= 2 * 72 < elements_without


COMPILED = [name for name in OPERATORS if "," not in name]


@pytest.fixture
def counters(monkeypatch):
    """Those of the compiler, which is empty, and generates no code for ``compiled``."""

    def traced(kernel):
        return torch.compile(kernel, dynamic=True, fullgraph=True, backend="aot_eager")

    monkeypatch.setattr(operator, "compiled_function", functools.cache(traced))
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch.compiler.reset()


def assert_compiled_equals_eager(name, rows, D=2, **tolerances):
    votes = random(rows, 3, 5, D, seed=rows)
    found = run_with_gradient(OPERATORS[name], votes, 2, backend="compiled")
    expected = run_with_gradient(OPERATORS[name], votes, 2, backend="eager")
    torch.testing.assert_close(found, expected, **tolerances)


@needs_compiler
@pytest.mark.parametrize(
    "names",
    [COMPILED[:2], pytest.param(COMPILED, marks=pytest.mark.nightly)],
    ids=["the first two", "all"],
)
def test_one_graph_of_an_operator_and_its_gradient_serves_every_batch_size(names, counters):
    """The limit of variants is each operator's own, or the second would exceed it."""
    with torch._dynamo.config.patch(recompile_limit=1):
        for count, name in enumerate(names, start=1):
            for rows in (7, 12, 4):
                assert_compiled_equals_eager(name, rows)
            assert counters["stats"]["unique_graphs"] == count, name
    assert not counters["graph_break"]


@pytest.mark.nightly  # the code that torch generates; with every commit the graphs above
@needs_compiler
def test_compiled_equals_eager():
    assert_compiled_equals_eager("simple_routing", 7, D=1, rtol=1e-4, atol=1e-5)

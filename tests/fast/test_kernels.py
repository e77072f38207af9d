"""The kernels equal the oracles and the eager operators: C++ on a CPU, Triton on a GPU.

``test_triton.py`` runs this file with Triton on a CPU, in a process of its own.
"""

import contextlib
import itertools

import pytest
import torch

from capsnmt import routing
from capsnmt.fast.triton.launch import triton_obstacle
from capsnmt.routing import backend
from tests.counting import kept
from tests.routing.operators import OPERATORS, betas, kernels_of, random
from tests.routing.test_numbers import EXTREMES, assert_finite

INTERPRETED = triton_obstacle("cpu") is None
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU and not INTERPRETED else "cpu"
BACKEND = "triton" if GPU or INTERPRETED else "cpp"
OBSTACLE = backend.backend_obstacle(BACKEND, DEVICE)
pytestmark = [pytest.mark.skipif(bool(OBSTACLE), reason=f"NOT TESTED: {BACKEND} {OBSTACLE}")]
if DEVICE == "cuda":
    pytestmark.append(pytest.mark.cuda)
if INTERPRETED:
    from . import memory_accesses

LOW = [torch.bfloat16] if BACKEND == "cpp" else [torch.float16, torch.bfloat16]
FUSED = {
    "dynamic_routing": routing.dynamic_routing,  # both results
    **{
        name: OPERATORS[name]
        for name in (
            "dynamic_routing, masked",
            "simple_routing",
            "inverted_routing",
            "em_routing",
            "em_routing, activation of inputs",
            "em_routing, activation of pairs",
            "vertical_routing, masked",
        )
        if name.split(",")[0] in kernels_of(BACKEND)
    },
}
# The time of the backward pass in the interpreter grows as tokens x T^2, hardly with the others.
SHAPES = [  # tokens, I, N, D; T
    ((2, 1, 1, 1), 1),
    ((3, 8, 12, 1), 2),  # of three tokens the mask leaves one as it is
    ((1, 16, 5, 1), 2),
    ((1, 5, 3, 8), 3),
    ((1, 2, 3, 64), 2),
    ((1, 3, 9, 2), 5),
]
if not INTERPRETED:  # many iterations, the papers' sizes, and the largest tile
    SHAPES += [((2, 3, 9, 2), 10)]
    SHAPES += [((5, 8, 512, 1), 3), ((5, 16, 1024, 1), 3), ((5, 8, 64, 64), 3)]
# In the interpreter, which is slow, every kernel runs with every shape, and each of its variants
# with one; variants with other shapes, extremes that resemble those tested, and the graphs of other
# operators, which C++ has with every commit, run at night.
KERNELS = (
    "dynamic_routing",
    "simple_routing",
    "inverted_routing",
    "em_routing, activation of pairs",
)
RESEMBLED = ("equal, 1e4", "equal, -1e4", "random, 1e4", "random, 1e-10", "equal for all inputs")


def cases(*products, at_night):
    return [
        pytest.param(*case, marks=[pytest.mark.nightly] if INTERPRETED and at_night(*case) else [])
        for case in itertools.product(*products)
    ]


def run(operator, tensors, T, backend):
    """Return the results and, by random cotangents, the gradients of the floating tensors."""
    leaves = [
        tensor.detach().to(DEVICE).requires_grad_(tensor.is_floating_point()) for tensor in tensors
    ]
    with torch.device(DEVICE):
        results = operator(*leaves, T, backend=backend)
    results = results if isinstance(results, tuple) else (results,)
    cotangents = [
        random(*result.shape, seed=seed).to(result) for seed, result in enumerate(results)
    ]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = torch.autograd.grad(results, wanted, cotangents)
    return [tensor.detach().cpu() for tensor in (*results, *gradients)]


@pytest.fixture(autouse=True)
def accesses():
    """In the interpreter every test proves that the kernels stay within their own memory, too."""
    with memory_accesses.checked() if INTERPRETED else contextlib.nullcontext():
        yield


def em_all(votes, beta_a, beta_u, activation, T, **options):
    return routing.em_routing(votes, beta_a, beta_u, T, activation, **options)


def assert_as_exact_as_eager(operator, tensors, T):
    """At most twice the error of the eager operator in fp32, against fp64."""
    resolution = 4e-6 if INTERPRETED else 2e-5  # a GPU approximates exp and sqrt
    if T * tensors[0].size(-1) > 128:
        resolution = 2e-3  # of 25 draws without AVX-512, EM routing's gradients had up to 1e-3
    if T > 3:
        resolution = 1e-2  # many iterations amplify every rounding
    doubles = [t.double() if t.is_floating_point() else t for t in tensors]
    exact = run(operator, doubles, T, "eager")
    eager = run(operator, tensors, T, "eager")
    ours = run(operator, tensors, T, BACKEND)
    for reference, other, our in zip(exact, eager, ours):
        scale = reference.abs().max() + 1e-30
        error = 2 * (other - reference).abs().max() + resolution * scale
        assert (our - reference).abs().max() <= error


@pytest.mark.parametrize(
    ("name", "case"),
    cases(FUSED, SHAPES, at_night=lambda name, case: name not in KERNELS and case != SHAPES[1]),
)
def test_values_and_gradients_of_every_shape_class(name, case):
    shape, T = case
    # At D = 64 the activations of unit votes would all be 0.
    assert_as_exact_as_eager(FUSED[name], [random(*shape) * shape[-1] ** -0.25], T)


@pytest.mark.parametrize("activation", [(4,), (4, 6)])
def test_em_gradients_of_costs_and_activation(activation):
    votes = random(2, 4, 6, 2)
    tensors = [votes, *betas(votes), random(2, *activation, seed=2).sigmoid()]
    assert_as_exact_as_eager(em_all, tensors, 3)


@pytest.mark.parametrize(
    ("shape", "beta_a", "beta_u"),
    [
        ((2, 4, 20, 1), -200, 0),
        ((2, 64, 4, 1), -30, 0),
        ((2, 64, 4, 1), 0, 5),
        ((2, 3, 5, 40), 0, 0),
    ],
)
def test_a_softmax_that_needs_its_maximum_gets_it(shape, beta_a, beta_u):
    votes, N = random(*shape) * shape[-1] ** -0.25, shape[2]
    costs = beta_a + torch.linspace(-1, 1, N), torch.full((N,), float(beta_u))
    # before the last M-step, whose A is 0 here
    assert_as_exact_as_eager(routing.em_routing, [votes, *costs], 2)


def test_a_density_beyond_the_largest_number_is_not_bounded_where_activations_are_small():
    """Votes that agree, of which one capsule's agree more, and A = exp(-440)."""
    votes = random(1, 1, 2, 32).repeat(1, 4, 1, 1)
    votes[0, 1:, 1] += 1e-3 * random(3, 32, seed=2)
    assert_as_exact_as_eager(
        routing.em_routing, [votes, torch.full((2,), -440.0), torch.zeros(2)], 2
    )


@pytest.mark.parametrize("scale", [300, -300])
@pytest.mark.parametrize("name", ["dynamic_routing", "simple_routing", "dynamic_routing, masked"])
def test_logits_of_hundreds_get_the_maximum_of_their_softmax(name, scale):
    assert_as_exact_as_eager(FUSED[name], [scale * random(3, 4, 20, 2).abs()], 2)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", ["em_routing, activation of inputs", "dynamic_routing, masked"])
def test_low_precision_votes_are_routed_in_fp32(name, dtype):
    votes = random(2, 3, 6, 2, dtype=dtype)
    eager = run(FUSED[name], [votes], 2, "eager")
    ours = run(FUSED[name], [votes], 2, BACKEND)
    for one, other in zip(ours, eager):
        assert one.dtype == dtype
        one, other = one.float(), other.float()
        # One rounding to the votes' dtype; the interpreter truncates to bf16.
        resolution = torch.finfo(dtype).eps
        size = other.abs().max().item()
        torch.testing.assert_close(one, other, rtol=2 * resolution, atol=1e-4 * size)


def test_capsules_of_half_precision_are_finite():
    votes = torch.full((1, 8, 1, 1), 1e4, dtype=LOW[0])  # inverted routing adds them up
    assert_finite(*run(OPERATORS["inverted_routing"], [votes], 1, BACKEND))


def test_costs_may_have_another_dtype_than_the_votes():
    votes = random(2, 4, 6, 1)
    low = LOW[0]
    tensors = [votes.to(low), *betas(votes), random(2, 4, seed=2).sigmoid().to(low)]
    for name in ("eager", BACKEND):
        found = run(em_all, tensors, 2, name)
        assert [tensor.dtype for tensor in found[1:]] == [tensor.dtype for tensor in tensors]


if INTERPRETED:

    @pytest.mark.parametrize(
        ("programs", "read", "written", "fault"),
        [(1, 5, 5, None), (1, 6, 5, "outside"), (1, 5, 6, "outside"), (2, 5, 5, "share a result")],
    )
    def test_an_access_of_memory_that_is_not_its_own_fails(programs, read, written, fault):
        failed = pytest.raises(Exception, match=fault) if fault else contextlib.nullcontext()
        with failed:
            copy = memory_accesses.copy_kernel[(programs,)]
            copy(torch.ones(8)[:5], torch.ones(8)[:5], read, written, BLOCK=8)


if BACKEND == "triton":  # the bits of the C++ kernels: test_cpp.py

    def test_two_runs_give_the_same_bits_for_any_number_of_programs(monkeypatch):
        from capsnmt.fast.triton import em

        votes = random(5, 4, 6, 1)
        tensors = [votes, *betas(votes), random(5, 4, seed=2).sigmoid()]
        monkeypatch.setattr(em, "PROGRAMS", 3)  # 2, 2 and 1 tokens
        found, again = (run(em_all, tensors, 2, BACKEND) for _ in range(2))
        torch.testing.assert_close(found, again, rtol=0, atol=0)
        assert_as_exact_as_eager(em_all, tensors, 2)


@pytest.mark.parametrize(
    ("name", "extreme"),
    cases(
        ("em_routing", "simple_routing", "dynamic_routing"),
        EXTREMES,
        at_night=lambda name, extreme: extreme in RESEMBLED,
    ),
)
def test_values_and_gradients_are_finite(name, extreme):
    T = 10 if extreme == "equal for all outputs" else 3
    votes = EXTREMES[extreme](random(1, 4, 3, 2))
    assert_finite(*run(OPERATORS[name], [votes], T, BACKEND))


@pytest.mark.parametrize("activation", [0.0, 1e-12, 1e-9])
def test_em_gradients_where_masses_are_below_their_floor(activation):
    votes = random(2, 4, 6, 2)
    tensors = [votes, *betas(votes), torch.full((2, 4), activation)]
    assert_as_exact_as_eager(em_all, tensors, 3)


@pytest.mark.parametrize("axis", [1, 2])
def test_masked_votes_need_not_be_finite(axis):
    votes = random(1, 3, 4, 2)
    votes.select(axis, 1).fill_(float("inf"))

    def masked(votes, T, **options):
        inputs = torch.tensor([[True, False, True]]) if axis == 1 else None
        outputs = torch.tensor([[True, False, True, True]]) if axis == 2 else None
        return routing.dynamic_routing(votes, T, inputs, outputs, **options)

    assert_as_exact_as_eager(masked, [votes], 3)


@pytest.mark.parametrize("used", [0, 1])
def test_the_gradient_of_one_result_needs_not_the_other(used):
    def one_result(votes, T, **options):
        return routing.dynamic_routing(votes, T, **options)[used]

    assert_as_exact_as_eager(one_result, [random(2, 3, 4, 2)], 3)


def test_strided_votes_and_gradients():
    votes = random(4, 3, 2, 5).transpose(1, 3)[::2].to(DEVICE).requires_grad_()
    results = []
    for name in ("eager", BACKEND):
        capsules = routing.simple_routing(votes, 3, backend=name)
        results.append((capsules, *torch.autograd.grad(capsules.sum(), votes)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_nothing_but_the_inputs_is_kept_for_the_backward_pass():
    votes = random(2, 3, 4, 2).to(DEVICE).requires_grad_()
    costs = [beta.to(DEVICE) for beta in betas(votes.detach().cpu())]
    with kept() as tensors:
        routing.em_routing(votes, *costs, 3, backend=BACKEND)
    assert {x.data_ptr() for x in tensors} <= {x.data_ptr() for x in (votes, *costs)}


def test_no_tokens_give_no_capsules():
    for name in ("em_routing", "dynamic_routing", "simple_routing"):
        for tensor in run(OPERATORS[name], [torch.zeros(0, 3, 4, 2)], 3, BACKEND):
            assert tensor.size(0) == 0


@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_exporting"), reason="before torch 2.7 graphs have no kernels"
)
@pytest.mark.parametrize("name", cases(FUSED, at_night=lambda name: name != KERNELS[0]))
def test_a_graph_of_torch_compile_calls_the_kernels_and_computes_the_same(name):
    operator, graphs = FUSED[name], []

    def route(given):  # a graph of more than that, in which the votes are strided
        votes = (2 * given).view(2, 4, 3, 5).transpose(1, 2)
        results = operator(votes, 2, backend=BACKEND)
        return results if isinstance(results, tuple) else (results,)

    def record(graph, _):
        graphs.append(graph)
        return graph

    given = random(2, 60).to(DEVICE).requires_grad_()
    with torch.device(DEVICE):
        expected = route(given)
    cotangents = [random(*result.shape, seed=3).to(result) for result in expected]
    expected = [*expected, *torch.autograd.grad(expected, given, cotangents)]
    torch._dynamo.reset()
    for backend_ in (record, "aot_eager"):  # the second also runs without numbers
        with torch.device(DEVICE):
            found = torch.compile(route, backend=backend_, fullgraph=True, dynamic=True)(given)
        found = [*found, *torch.autograd.grad(found, given, cotangents)]
        assert all(map(torch.equal, found, expected))
    derived = torch.func.grad(lambda given: sum(each.square().sum() for each in route(given)))
    with torch.device(DEVICE):
        found = torch.compile(derived, backend="aot_eager")(given.detach())
        torch.testing.assert_close(found, derived(given.detach()))
    operation = f"{name.split(',')[0]}_{BACKEND}"
    assert any(operation in str(node.target) for node in graphs[0].graph.nodes)

"""Values and gradients are finite at the extremes, and computed in fp32 for every dtype."""

import pytest
import torch

from capsnmt import routing

from .operators import NAMES, OPERATORS, betas, kernels_of, random, run_with_gradient

SHAPES = [(2, 3, 4, 1), (2, 1, 1, 1), (2, 2, 2, 128)]
EXTREMES = {
    "equal": torch.ones_like,
    "zero": torch.zeros_like,
    "equal, 1e4": lambda v: torch.full_like(v, 1e4),
    "equal, -1e4": lambda v: torch.full_like(v, -1e4),
    "random, 1e4": lambda v: 1e4 * v,
    "signs, 1e4": lambda v: 1e4 * v.sign(),
    "random, 1e-10": lambda v: 1e-10 * v,
    "nearly equal": lambda v: 1 + 1e-6 * v,
    "equal for all outputs": lambda v: 1e4 * v[:, :, :1].expand_as(v),
    "equal for all inputs": lambda v: 1e4 * v[:, :1].expand_as(v),
    "one outlier": lambda v: v * torch.linspace(0, 1, v.size(1)).pow(9).mul(1e4)[:, None, None],
}


# On a CPU ``auto`` takes the C++ kernels: the equations in torch must be finite, too.
on_each_backend = pytest.mark.parametrize("backend", ["eager", "auto"])


RUN = [
    (name, backend)
    for name in OPERATORS
    for backend in ("eager", "auto")
    if backend == "eager" or name.split(",")[0] in kernels_of("cpp")
]


def assert_finite(*tensors):
    for tensor in tensors:
        assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize(("name", "backend"), RUN)
def test_values_and_gradients_are_finite(name, extreme, backend):
    for shape in SHAPES:
        votes = EXTREMES[extreme](random(*shape))
        for iterations in (1, 10):
            assert_finite(*run_with_gradient(OPERATORS[name], votes, iterations, backend=backend))


@on_each_backend
@pytest.mark.parametrize("operator", [routing.dynamic_routing, routing.vertical_routing])
def test_logits_of_half_precision_are_finite(operator, backend):
    votes = torch.full((2, 3, 4, 8), 1e4, dtype=torch.float16)
    assert_finite(*operator(votes, 10, backend=backend))


@on_each_backend
@pytest.mark.parametrize("activation", [0.0, 1e-38, 1e-12, 1e-6, 1.0])
def test_em_gradients_are_finite_for_vanishing_activations(activation, backend):
    for extreme in EXTREMES.values():
        votes = extreme(random(2, 4, 3, 1)).requires_grad_()
        act = torch.full((2, 4), activation, requires_grad=True)
        beta_a, beta_u = (beta.requires_grad_() for beta in betas(votes.detach()))
        for iterations in (1, 10):
            capsules = routing.em_routing(votes, beta_a, beta_u, iterations, act, backend=backend)
            gradients = torch.autograd.grad(capsules.sum(), [votes, beta_a, beta_u, act])
            assert_finite(capsules, *gradients)


@on_each_backend
def test_em_without_any_activation_gives_empty_capsules(backend):
    votes = random(2, 4, 3, 2)
    capsules = routing.em_routing(votes, *betas(votes), 3, torch.zeros(2, 4), backend=backend)
    assert torch.equal(capsules, torch.zeros(2, 3, 2))


@on_each_backend
@pytest.mark.parametrize("name", NAMES)
def test_no_tokens_give_no_capsules(name, backend):
    for tensor in run_with_gradient(OPERATORS[name], torch.zeros(0, 3, 4, 4), 3, backend=backend):
        assert tensor.size(0) == 0


@pytest.mark.parametrize("scale", [1, 1000])  # fp16 squares overflow beyond 256
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OPERATORS)
def test_low_precision_is_the_fp32_result_rounded_once(name, dtype, scale):
    votes = scale * random(2, 3, 4, 2, dtype=dtype)
    # The same costs and activations: the other arguments of the operators are rounded as well.
    exact, exact_gradient = run_with_gradient(OPERATORS[name], votes.float(), 3)
    result, gradient = run_with_gradient(OPERATORS[name], votes, 3)
    assert (result.dtype, gradient.dtype) == (dtype, dtype)
    resolution = torch.finfo(dtype).eps
    torch.testing.assert_close(result.float(), exact, rtol=4 * resolution, atol=4 * resolution)
    size = exact_gradient.abs().max().item()
    atol = 16 * resolution * size + 1e-7  # fp16 has no smaller numbers
    torch.testing.assert_close(gradient.float(), exact_gradient, rtol=0, atol=atol)


@pytest.mark.parametrize("name", OPERATORS)
def test_autocast_does_not_lower_the_inner_precision(name):
    def autocast(votes, iterations):  # the forward only, as in training
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return OPERATORS[name](votes, iterations)

    votes = random(2, 3, 4, 2)
    found, expected = (run_with_gradient(each, votes, 3) for each in (autocast, OPERATORS[name]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("iterations", [0, -1, 2.5, True, "3", None])
@pytest.mark.parametrize("name", OPERATORS)
def test_iterations_must_be_a_positive_whole_number(name, iterations):
    with pytest.raises(ValueError, match="whole number >= 1, not"):
        OPERATORS[name](random(2, 3, 4, 5), iterations)


def test_squash_keeps_the_dtype_and_computes_in_fp32():
    s = torch.tensor([300.0, 400.0], dtype=torch.float16)  # |s|^2 = 250,000 is no fp16 number
    assert routing.squash(s).dtype == torch.float16
    torch.testing.assert_close(
        routing.squash(s).float(), torch.tensor([0.6, 0.8]), atol=1e-3, rtol=0
    )

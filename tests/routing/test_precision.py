"""Any floating dtype, under autocast too: fp32 inside, the votes' dtype outside."""

from __future__ import annotations

import pytest
import torch

from capsnmt import routing
from capsnmt.routing import dynamic, em, horizontal, simple, vertical

from .operators import OPERATORS, betas, random, run_with_gradient

LOW = [torch.float16, torch.bfloat16]

# The equations in the dtype of their inputs: the kernels without their cast to fp32.
PLAIN = {
    "dynamic_routing": lambda v: dynamic.dynamic_kernel(v, None, None, iterations=3)[0],
    "simple_routing": lambda v: simple.simple_kernel(v, iterations=3),
    "em_routing": lambda v: em.em_kernel(
        v, None, *betas(v), iterations=3, variance_floor=em.VARIANCE_FLOOR
    ),
    "vertical_routing": lambda v: vertical.vertical_kernel(v, None, None, iterations=3)[0],
    "horizontal_routing": lambda v: horizontal.horizontal_kernel(
        v, None, None, iterations=3, causal=False
    ),
}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", OPERATORS)
def test_low_precision_is_the_fp32_result_rounded_once(name, dtype):
    votes = random(2, 3, 4, 2, dtype=dtype)
    # The same costs and activations: the other arguments of the operators are rounded as well.
    exact, exact_gradient = run_with_gradient(OPERATORS[name], votes.float(), 3)
    result, gradient = run_with_gradient(OPERATORS[name], votes, 3)
    assert (result.dtype, gradient.dtype) == (dtype, dtype)
    resolution = torch.finfo(dtype).eps
    torch.testing.assert_close(result.float(), exact, rtol=4 * resolution, atol=4 * resolution)
    size = exact_gradient.abs().max().item()
    torch.testing.assert_close(
        gradient.float(), exact_gradient, rtol=0, atol=16 * resolution * size
    )


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("name", PLAIN)
def test_error_is_at_most_twice_that_of_plain_low_precision_torch(name, dtype):
    def plain(votes, iterations):
        return PLAIN[name](votes)

    votes = random(4, 6, 8, 3, dtype=dtype)
    references = run_with_gradient(OPERATORS[name], votes.float(), 3)
    ours = run_with_gradient(OPERATORS[name], votes, 3)
    theirs = run_with_gradient(plain, votes, 3)
    for reference, our, their in zip(references, ours, theirs):
        plain_error = (their - reference).abs().nan_to_num(nan=float("inf")).max()
        assert (our - reference).abs().max() <= 2 * plain_error


@pytest.mark.parametrize("name", OPERATORS)
def test_autocast_does_not_lower_the_inner_precision(name):
    def autocast(votes, iterations):  # the forward only, as in training
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return OPERATORS[name](votes, iterations)

    votes = random(2, 3, 4, 2)
    found = run_with_gradient(autocast, votes, 3)
    for one, other in zip(found, run_with_gradient(OPERATORS[name], votes, 3)):
        assert torch.equal(one, other)


def test_costs_may_have_another_dtype_than_the_votes():
    votes = random(2, 3, 4, 1, dtype=torch.bfloat16)
    beta_a, beta_u = (beta.float().requires_grad_() for beta in betas(votes))
    capsules = routing.em_routing(votes, beta_a, beta_u, 3)
    gradients = torch.autograd.grad(capsules.sum(), [beta_a, beta_u])
    assert capsules.dtype == torch.bfloat16
    for gradient in gradients:
        assert gradient.dtype == torch.float32
        assert gradient.abs().min() > 0


def test_squash_keeps_the_dtype_and_computes_in_fp32():
    s = torch.tensor([300.0, 400.0], dtype=torch.float16)  # |s|^2 = 250,000 is no fp16 number
    assert routing.squash(s).dtype == torch.float16
    torch.testing.assert_close(
        routing.squash(s).float(), torch.tensor([0.6, 0.8]), atol=1e-3, rtol=0
    )

"""Any floating dtype, under autocast too: fp32 inside, the votes' dtype outside."""

from __future__ import annotations

import pytest
import torch

from capsnmt import routing

from .operators import OPERATORS, betas, random, run_with_gradient

LOW = [torch.float16, torch.bfloat16]


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

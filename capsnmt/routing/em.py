"""EM routing (li2019 Algorithm 2, dou2019 Algorithm 2)."""

from typing import List, Optional

from torch import Tensor
from torch.nn import functional as F

from . import numerics
from .checks import check_activation, check_betas, check_variance_floor, check_votes
from .numerics import (
    VARIANCE_FLOOR,
    bound_gradient,
    inverse_temperature,
    sum_over_inputs,
    sum_over_width,
    uniform_coefficients,
)
from .operator import Operator


def em_routing(
    votes: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int = 3,
    input_activation: Optional[Tensor] = None,
    variance_floor: float = VARIANCE_FLOOR,
    backend: str = "auto",
) -> Tensor:
    """Route by agreement; EM fits one Gaussian per output capsule to its votes.

    Start with C[i,n] = 1/N. For t = 0..T-1, M-step with the inverse temperature lam_t::

        R[i,n] = C[i,n] a_in[i,n]                                  (dou2019 Alg. 2, M-step 3)
        r[n]   = sum_i R[i,n]
        mu[n]  = sum_i R[i,n] V[i,n] / r[n]                        (li2019 eq 10, dou2019 eq 11)
        var[n] = sum_i R[i,n] (V[i,n] - mu[n])^2 / r[n]            (li2019 eq 11, dou2019 eq 12)
        chi[n] = sum_D (log sigma[n] + (1 + log 2 pi) / 2) r[n]    (dou2019 eq 13)
        A[n]   = logistic(lam_t (beta_a[n] - beta_u[n] r[n] - chi[n]))       (dou2019 eq 14)

    and, except after the last M-step, E-step::

        log p[i,n] = -sum_D ((V[i,n] - mu[n])^2 / (2 var[n]) + log sigma[n] + log(2 pi) / 2)
        C[i,n] = softmax over n of (log A[n] + log p[i,n])         (li2019 eq 12, dou2019 eq 16)

    The result is A[n] mu[n] (li2019 eq 9).

    **D**: the E-step is computed in the log domain. A capsule's density is the product over its D
    dimensions, as in Hinton et al. (2018); li2019 has a sum of densities, which is the same at
    D = 1.

    Args:
        votes: V, ``[..., I, N, D]``, any floating dtype; arithmetic is fp32 or better.
        beta_a: cost of describing an active capsule, ``[N]``.
        beta_u: cost of leaving an input capsule undescribed, ``[N]``.
        iterations: T >= 1.
        input_activation: a_in, ``[..., I]`` or ``[..., I, N]``, 0 or more; None = all 1.
        variance_floor: added to every variance, in squared units of the votes.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules, ``[..., N, D]``, dtype of ``votes``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> votes = torch.tensor([[[1.0], [4.0]], [[3.0], [4.0]]])  # I = 2, N = 2, D = 1
    >>> em_routing(votes, torch.zeros(2), torch.zeros(2), iterations=1)
    tensor([[0.3897],
            [3.9835]])

    (mu = 2, 4; var = 1, 0; r = 1; chi = 1.4189, log(1e-3) + 1.4189; A = 0.1948, 0.9959.)
    """
    check_votes(votes)
    check_betas(votes, beta_a, beta_u)
    check_variance_floor(variance_floor)
    activation = check_activation(votes, input_activation)
    settings = {"iterations": iterations, "variance_floor": variance_floor}
    return OPERATOR(votes, activation, beta_a, beta_u, backend=backend, **settings)


def em_kernel(
    votes: Tensor,
    activation: Optional[Tensor],
    beta_a: Tensor,
    beta_u: Tensor,
    iterations: int,
    variance_floor: float,
    trace: Optional[List[Tensor]] = None,
) -> Tensor:
    """Compute ``em_routing`` on ``[..., I, N, D]``, activation ``[..., I, N or 1]``, in fp32."""
    C = uniform_coefficients(votes)
    for t in range(iterations):
        if trace is not None:
            trace.append(C.detach())
        R = C if activation is None else C * activation
        r = R.sum(-2)
        mass = r.clamp(min=numerics.MASS_FLOOR).unsqueeze(-1)
        mu = sum_over_inputs(R, votes) / mass
        squared_distance = (votes - mu.unsqueeze(-3)).square()
        var = bound_gradient(sum_over_inputs(R, squared_distance) / mass) + variance_floor
        log_sigma = 0.5 * var.log()
        chi = sum_over_width(log_sigma + (1 + numerics.LOG_2PI) / 2) * r
        logit_A = inverse_temperature(t, iterations) * (beta_a - beta_u * r - chi)
        if t < iterations - 1:
            # Sum the terms without i first: they are I times smaller than the votes.
            log_A_and_norm = F.logsigmoid(logit_A) - sum_over_width(
                log_sigma + numerics.LOG_2PI / 2
            )
            exponent = sum_over_width(squared_distance * (0.5 / var).unsqueeze(-3))
            C = bound_gradient((log_A_and_norm.unsqueeze(-2) - exponent).softmax(-1))
    return logit_A.sigmoid().unsqueeze(-1) * mu


OPERATOR = Operator("em_routing", em_kernel, rows=2)

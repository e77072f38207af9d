"""EM routing on a tile. The equations are those of :func:`capsnmt.routing.em.em_routing`."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional

import triton
import triton.language as tl
from torch import Tensor

from ..numerics import inverse_temperature
from .tile import (
    MASS_FLOOR,
    capsule_offsets,
    capsules_in_range,
    load_tile,
    pair_offsets,
    pairs_in_range,
    softmax_over_outputs,
    tile_arguments,
    vote_offsets,
)

HALF_LOG_2PI = tl.constexpr(math.log(2 * math.pi) / 2)


def shared_arguments(
    votes: Tensor, activation: Optional[Tensor], iterations: int, variance_floor: float
) -> Dict[str, Any]:
    """Return the kernel arguments that forward and backward share."""
    return {
        "variance_floor": variance_floor,
        "lam_step": inverse_temperature(1, iterations) - 1,
        "T": iterations,
        "PER_PAIR": activation is not None and activation.size(-1) > 1,
        **tile_arguments(votes),
    }


def forward(
    votes: Tensor,
    activation: Optional[Tensor],
    beta_a: Tensor,
    beta_u: Tensor,
    *,
    iterations: int,
    variance_floor: float,
) -> Tensor:
    """Compute the capsules ``[tokens, N, D]``; the arguments are those of ``em_kernel``."""
    tokens, _, N, D = votes.shape
    capsules = votes.new_empty(tokens, N, D)
    arguments = shared_arguments(votes, activation, iterations, variance_floor)
    forward_kernel[(tokens,)](votes, activation, beta_a, beta_u, capsules, **arguments)
    return capsules


@triton.jit
def load_activation(
    activation, token, I, N, real, PER_PAIR: tl.constexpr, I_PAD: tl.constexpr, N_PAD: tl.constexpr
):
    """Return a_in ``[I, N]``; its value is arbitrary outside the real pairs, where C is 0."""
    if activation is None:
        a = tl.full([I_PAD, N_PAD], 1.0, tl.float32)  # the compiler drops the products
    elif PER_PAIR:
        a = load_tile(activation + token * I * N + pair_offsets(N, I_PAD, N_PAD), real)
    else:
        inputs = tl.broadcast_to(tl.arange(0, I_PAD)[:, None], [I_PAD, N_PAD])
        a = load_tile(activation + token * I + inputs, real)
    return a


@triton.jit
def m_step(V, R, variance_floor):
    """Fit one Gaussian per output capsule: return r ``[N]``; mu and var, ``[N, D]``."""
    r = tl.sum(R, 0)
    mass = tl.maximum(r, MASS_FLOOR)[:, None]
    mu = tl.sum(R[:, :, None] * V, 0) / mass  # li2019 eq 10
    X = V - mu[None, :, :]
    var = tl.sum(R[:, :, None] * X * X, 0) / mass + variance_floor  # eq 11
    return r, mu, var


@triton.jit
def description_length(var, real_d):
    """Return chi[n] / r[n], the sum over D of log sigma + (1 + log 2 pi) / 2."""
    return tl.sum(tl.where(real_d, 0.5 * tl.log(var) + (0.5 + HALF_LOG_2PI), 0.0), 1)


@triton.jit
def e_step(V, mu, var, logit_A, cost, real, D):
    """Return C[i,n] for the next iteration (li2019 eq 12)."""
    log_A = tl.minimum(logit_A, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(logit_A)))
    X = V - mu[None, :, :]
    exponent = tl.sum(X * X * (0.5 / var)[None, :, :], 2)
    return softmax_over_outputs((log_A - (cost - 0.5 * D))[None, :] - exponent, real)


@triton.jit
def coefficients(t, V, a, beta_a, beta_u, variance_floor, lam_step, real, real_d, N, D):
    """Return C[i,n] of iteration t: its first value is 1/N, then t times M-step and E-step."""
    C = tl.where(real, 1.0 / N, 0.0)
    for s in range(t):
        r, mu, var = m_step(V, C * a, variance_floor)
        cost = description_length(var, real_d)
        logit_A = (1.0 + s * lam_step) * (beta_a - beta_u * r - cost * r)  # dou2019 eq 13, 14
        C = e_step(V, mu, var, logit_A, cost, real, D)
    return C


@triton.jit
def forward_kernel(
    votes,
    activation,
    beta_a,
    beta_u,
    capsules,
    variance_floor,
    lam_step,
    I,
    N,
    D,
    T: tl.constexpr,
    PER_PAIR: tl.constexpr,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Route one token: read its votes once, write its capsules once."""
    token = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N_PAD)
    real = pairs_in_range(I, N, I_PAD, N_PAD)
    real_nd = capsules_in_range(N, D, N_PAD, D_PAD)
    real_d = tl.arange(0, D_PAD)[None, :] < D
    V = load_tile(
        votes + token * I * N * D + vote_offsets(N, D, I_PAD, N_PAD, D_PAD),
        real[:, :, None] & real_d[None, :, :],
    )
    a = load_activation(activation, token, I, N, real, PER_PAIR, I_PAD, N_PAD)
    b_a = load_tile(beta_a + n, n < N)
    b_u = load_tile(beta_u + n, n < N)
    C = coefficients(T - 1, V, a, b_a, b_u, variance_floor, lam_step, real, real_d, N, D)
    r, mu, var = m_step(V, C * a, variance_floor)
    cost = description_length(var, real_d)
    logit_A = (1.0 + (T - 1) * lam_step) * (b_a - b_u * r - cost * r)
    out = tl.sigmoid(logit_A)[:, None] * mu  # li2019 eq 9
    tl.store(capsules + token * N * D + capsule_offsets(D, N_PAD, D_PAD), out, mask=real_nd)

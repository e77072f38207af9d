"""EM routing on a tile, and its gradients.

The equations are those of :func:`capsnmt.routing.em.em_routing`.
"""

import math
from typing import Any, Dict, Optional, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from capsnmt.routing.numerics import inverse_temperature

from . import tile

HALF_LOG_2PI = tl.constexpr(math.log(2 * math.pi) / 2)

PROGRAMS = 1024
"""Most programs of a backward pass. Each adds the gradients of beta_a and beta_u over its tokens in
their order; the partial sums are added afterwards. Without atomics two runs give the same bits, and
with a constant two GPUs add in the same order."""


def shared_arguments(
    votes: Tensor, activation: Optional[Tensor], iterations: int, variance_floor: float
) -> Dict[str, Any]:
    """Return the kernel arguments that forward and backward share."""
    return {
        "variance_floor": variance_floor,
        "lam_step": inverse_temperature(1, iterations) - 1,
        "T": iterations,
        "PER_PAIR": activation is not None and activation.size(-1) > 1,
        **tile.tile_arguments(votes),
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


def backward(
    g_results: Sequence[Tensor],
    votes: Tensor,
    activation: Optional[Tensor],
    beta_a: Tensor,
    beta_u: Tensor,
    *,
    iterations: int,
    variance_floor: float,
) -> Tuple[Tensor, Optional[Tensor], Tensor, Tensor]:
    """Compute the gradients of the votes, the activation, beta_a and beta_u."""
    tokens, N = votes.size(0), votes.size(-2)
    tokens_per_program = max(1, triton.cdiv(tokens, PROGRAMS))
    programs = triton.cdiv(tokens, tokens_per_program)
    g_votes = torch.empty_like(votes)
    g_activation = None if activation is None else torch.empty_like(activation)
    g_betas = votes.new_empty(2, programs, N, dtype=torch.float32)
    backward_kernel[(programs,)](
        votes,
        activation,
        beta_a,
        beta_u,
        *g_results,
        g_votes,
        g_activation,
        *g_betas,
        tokens=tokens,
        tokens_per_program=tokens_per_program,
        **shared_arguments(votes, activation, iterations, variance_floor),
    )
    # each by itself: an operation of torch may not return two views of a tensor
    g_beta_a, g_beta_u = (
        each.sum(0).to(beta.dtype) for each, beta in zip(g_betas, (beta_a, beta_u))
    )
    return g_votes, g_activation, g_beta_a, g_beta_u


@triton.jit
def load_activation(activation, token, I, N, real, PER_PAIR: tl.constexpr, RUN: tl.constexpr):
    """Return a_in ``[I, N]``; its value is arbitrary outside the real pairs, where C is 0."""
    I_PAD: tl.constexpr = real.shape[0]
    N_PAD: tl.constexpr = real.shape[1]
    if activation is None:
        a = tl.full([I_PAD, N_PAD], 1.0, tl.float32)  # the compiler drops the products
    elif PER_PAIR:
        a = tile.load_matrix(activation, token, real, I, N, RUN)
    else:
        inputs = tl.broadcast_to(tl.arange(0, I_PAD)[:, None], [I_PAD, N_PAD])
        a = tile.load_tile(activation + token * I + inputs, real)
    return a


@triton.jit
def m_step(V, R, lam, beta_a, beta_u, variance_floor, real_d):
    """Fit one Gaussian per output capsule: return r; mu and var, ``[N, D]``; chi / r and logit A.

    chi[n] / r[n] is the sum over D of log sigma + (1 + log 2 pi) / 2.
    """
    r = tl.sum(R, 0)
    per_mass = tile.reciprocal(tl.maximum(r, tile.MASS_FLOOR))[:, None]
    mu = tl.sum(R[:, :, None] * V, 0) * per_mass  # li2019 eq 10
    X = V - mu[None, :, :]
    var = tl.sum(R[:, :, None] * X * X, 0) * per_mass + variance_floor  # eq 11
    cost = tl.sum(tl.where(real_d, 0.5 * tl.log(var) + (0.5 + HALF_LOG_2PI), 0.0), 1)
    return r, mu, var, cost, lam * (beta_a - beta_u * r - cost * r)  # dou2019 eq 13, 14


@triton.jit
def e_step(V, mu, var, logit_A, cost, real, D):
    """Return C[i,n] for the next iteration (li2019 eq 12)."""
    log_A = tl.minimum(logit_A, 0.0) - tl.log(1.0 + tile.exp(-tl.abs(logit_A)))
    X = V - mu[None, :, :]
    exponent = tl.sum(X * X * (0.5 * tile.reciprocal(var))[None, :, :], 2)
    return tile.softmax_over_outputs((log_A - (cost - 0.5 * D))[None, :] - exponent, real)


@triton.jit
def coefficients(t, V, a, beta_a, beta_u, variance_floor, lam_step, real, real_d, N, D):
    """Return C[i,n] of iteration t, and mu and var ``[N, D]`` of the E-step that gave it.

    Its first value is 1/N, as of an infinite variance; then t times M-step and E-step.
    """
    C = tl.where(real, 1.0 / N, 0.0)
    mu = tl.zeros([V.shape[1], V.shape[2]], tl.float32)
    var = mu + float("inf")
    for s in range(t):
        lam = 1.0 + s * lam_step
        _, mu, var, cost, logit_A = m_step(V, C * a, lam, beta_a, beta_u, variance_floor, real_d)
        C = e_step(V, mu, var, logit_A, cost, real, D)
    return C, mu, var


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
    RUN: tl.constexpr,
):
    """Route one token: read its votes once, write its capsules once."""
    token = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N_PAD)
    real = tile.in_range(I, N, I_PAD, N_PAD)
    real_d = tl.arange(0, D_PAD)[None, :] < D
    V = tile.load_votes(votes, token, I, N, D, I_PAD, N_PAD, D_PAD, RUN)
    a = load_activation(activation, token, I, N, real, PER_PAIR, RUN)
    b_a = tile.load_tile(beta_a + n, n < N)
    b_u = tile.load_tile(beta_u + n, n < N)
    C, _, _ = coefficients(T - 1, V, a, b_a, b_u, variance_floor, lam_step, real, real_d, N, D)
    lam = 1.0 + (T - 1) * lam_step
    _, mu, _, _, logit_A = m_step(V, C * a, lam, b_a, b_u, variance_floor, real_d)
    tile.store_matrix(capsules, token, tl.sigmoid(logit_A)[:, None] * mu, N, D)  # li2019 eq 9


@triton.jit(do_not_specialize=["tokens", "tokens_per_program"])  # one build for all batches
def backward_kernel(
    votes,
    activation,
    beta_a,
    beta_u,
    g_capsules,
    g_votes,
    g_activation,
    g_beta_a,
    g_beta_u,
    tokens,
    tokens_per_program,
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
    RUN: tl.constexpr,
):
    """Walk the iterations of one token after another backwards; gX is the gradient of X.

    Nothing is kept from the forward pass: C of iteration t is computed again from the votes. At the
    papers' T = 3 this costs three M-steps and one E-step more than keeping the iterates would.
    The interpreter of Triton 3.6 has no range of a variable, which is a tensor there.
    """
    program = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N_PAD)
    real_d = tl.arange(0, D_PAD)[None, :] < D
    b_a = tile.load_tile(beta_a + n, n < N)
    b_u = tile.load_tile(beta_u + n, n < N)
    sum_g_beta_a = tl.zeros([N_PAD], tl.float32)
    sum_g_beta_u = tl.zeros([N_PAD], tl.float32)
    token = program * tokens_per_program
    end = tl.minimum(token + tokens_per_program, tokens)
    real = tile.in_range(I, N, I_PAD, N_PAD)
    real_nd = tile.in_range(N, D, N_PAD, D_PAD)
    while token < end:
        V = tile.load_votes(votes, token, I, N, D, I_PAD, N_PAD, D_PAD, RUN)
        a = load_activation(activation, token, I, N, real, PER_PAIR, RUN)
        g_out = tile.load_matrix(g_capsules, token, real_nd, N, D)
        gV = tl.zeros([I_PAD, N_PAD, D_PAD], tl.float32)
        ga = tl.zeros([I_PAD, N_PAD], tl.float32)
        # what the E-step after an iteration adds to the gradients of log A, mu and var
        g_log_A = tl.zeros([N_PAD], tl.float32)
        g_mu = tl.zeros([N_PAD, D_PAD], tl.float32)
        g_var = tl.zeros([N_PAD, D_PAD], tl.float32)
        for back in range(T):
            C, mu_before, var_before = coefficients(
                T - 1 - back, V, a, b_a, b_u, variance_floor, lam_step, real, real_d, N, D
            )
            R = C * a
            lam = 1.0 + (T - 1 - back) * lam_step
            r, mu, var, cost, logit_A = m_step(V, R, lam, b_a, b_u, variance_floor, real_d)
            A = tl.sigmoid(logit_A)
            mass = tl.maximum(r, tile.MASS_FLOOR)[:, None]

            # the result A mu, and log A - sum_D log sigma of the E-step
            g_logit_A = (tl.sum(g_out * mu, 1) * A + g_log_A) * tl.sigmoid(-logit_A)
            # logit A = lam (beta_a - beta_u r - chi), chi = cost r
            g_chi = -lam * g_logit_A
            sum_g_beta_a -= g_chi
            sum_g_beta_u += g_chi * r
            g_r = g_chi * (b_u + cost)
            g_log_sigma = (g_chi * r - g_log_A)[:, None]
            per_mass = tile.reciprocal(mass)
            g_var = tile.bound(g_var + g_log_sigma * (0.5 * tile.reciprocal(var))) * per_mass
            # X = V - mu, mu = sum_i R V / mass, and sum_i R X = (mass - r) mu
            g_mu += g_out * A[:, None] - 2.0 * g_var * (mass - r[:, None]) * mu
            g_mu = g_mu * per_mass
            # Where r is below its floor, the mass is a constant.
            kept = tl.where(r >= tile.MASS_FLOOR, 1.0, 0.0)[:, None]
            g_r += tl.sum((1.0 - kept) * g_mu * mu - kept * g_var * (var - variance_floor), 1)
            gV += R[:, :, None] * (
                2.0 * (V - mu[None, :, :]) * g_var[None, :, :] + g_mu[None, :, :]
            )
            X = V - mu[None, :, :]  # in which the gradient of R is of the second degree
            gR = g_r[None, :] + tl.sum(X * (g_var[None, :, :] * X + g_mu[None, :, :]), 2)
            ga += gR * C
            # C = softmax of log A - sum_D (log sigma + X^2 / (2 var)) of the iteration before
            gL = tile.softmax_gradient(gR * a, C)
            precision = tile.reciprocal(var_before)
            X = V - mu_before[None, :, :]
            gLX = gL[:, :, None] * X
            gV -= gLX * precision[None, :, :]
            g_log_A = tl.sum(gL, 0)
            g_mu = tl.sum(gLX, 0) * precision
            g_var = tl.sum(gLX * X, 0) * (0.5 * precision * precision)
            g_out = tl.zeros([N_PAD, D_PAD], tl.float32)  # only the last iteration has a result
        tile.store_votes(g_votes, token, gV, I, N, D, RUN)
        if g_activation is not None:
            if PER_PAIR:
                tile.store_matrix(g_activation, token, ga, I, N, RUN)
            else:  # a_in belongs to an input
                exists = tl.max(real.to(tl.int32), 1) != 0
                of_input = tl.sum(tl.where(real, ga, 0.0), 1)
                tl.store(g_activation + token * I + tl.arange(0, I_PAD), of_input, mask=exists)
        token += 1
    tl.store(g_beta_a + program * N + n, sum_g_beta_a, mask=n < N)
    tl.store(g_beta_u + program * N + n, sum_g_beta_u, mask=n < N)

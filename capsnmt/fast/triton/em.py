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
from .launch import padded

HALF_LOG_2PI = tl.constexpr(math.log(2 * math.pi) / 2)

PROGRAMS = 1024
"""Most programs of a backward pass. Each adds the gradients of beta_a and beta_u over its tokens in
their order; the partial sums are added afterwards. Without atomics two runs give the same bits, and
with a constant two GPUs add in the same order. Each has room for what it keeps of one token."""


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
    tokens, I, N, D = votes.shape
    tokens_per_program = max(1, triton.cdiv(tokens, PROGRAMS))
    programs = triton.cdiv(tokens, tokens_per_program)
    g_votes = torch.empty_like(votes)
    g_activation = None if activation is None else torch.empty_like(activation)
    g_betas = votes.new_empty(2, programs, N, dtype=torch.float32)
    steps = max(iterations - 1, 1)  # the last iteration has no E-step
    kept = votes.new_empty(programs, steps, N * (2 * D + 3), dtype=torch.float32)
    log_sums = votes.new_empty(programs, steps, padded(I), dtype=torch.float32)
    backward_kernel[(programs,)](
        votes,
        activation,
        beta_a,
        beta_u,
        *g_results,
        g_votes,
        g_activation,
        *g_betas,
        kept,
        log_sums,
        tokens=tokens,
        tokens_per_program=tokens_per_program,
        BLOCK=block_of(padded(I)),
        **shared_arguments(votes, activation, iterations, variance_floor),
    )
    # each by itself: an operation of torch may not return two views of a tensor
    g_beta_a, g_beta_u = (
        each.sum(0).to(beta.dtype) for each, beta in zip(g_betas, (beta_a, beta_u))
    )
    return g_votes, g_activation, g_beta_a, g_beta_u


def block_of(inputs: int) -> int:
    """Return how many inputs of a token the gradient works on at once: a quarter, or four.

    Four tiles of 16 x 1024 are all registers of a multiprocessor. With the gradient of the votes
    in one, what is computed of a block at a time fits beside it.
    """
    return max(min(inputs, 4), inputs // 4)


@triton.jit
def load_activation(
    activation, token, I, N, real, PER_PAIR: tl.constexpr, RUN: tl.constexpr, first=0
):
    """Return a_in ``[I, N]``; its value is arbitrary outside the real pairs, where C is 0."""
    I_PAD: tl.constexpr = real.shape[0]
    N_PAD: tl.constexpr = real.shape[1]
    if activation is None:
        a = tl.full([I_PAD, N_PAD], 1.0, tl.float32)  # the compiler drops the products
    elif PER_PAIR:
        a = tile.load_matrix(activation, token, real, I, N, RUN, first)
    else:
        inputs = tl.broadcast_to(first + tl.arange(0, I_PAD)[:, None], [I_PAD, N_PAD])
        a = tile.load_tile(activation + token * I + inputs, real)
    return a


@triton.jit
def m_step(V, R, lam, beta_a, beta_u, variance_floor, D):
    """Fit one Gaussian per output capsule: return r; mu and var, ``[N, D]``; chi / r and logit A.

    chi[n] / r[n] is the sum over D of log sigma + (1 + log 2 pi) / 2.
    """
    r = tl.sum(R, 0)
    per_mass = tile.reciprocal(tl.maximum(r, tile.MASS_FLOOR))[:, None]
    mu = tl.sum(R[:, :, None] * V, 0) * per_mass  # li2019 eq 10
    X = V - mu[None, :, :]
    var = tl.sum(R[:, :, None] * X * X, 0) * per_mass + variance_floor  # eq 11
    real_d = tl.arange(0, V.shape[2])[None, :] < D
    cost = tl.sum(tl.where(real_d, 0.5 * tl.log(var) + (0.5 + HALF_LOG_2PI), 0.0), 1)
    return r, mu, var, cost, lam * (beta_a - beta_u * r - cost * r)  # dou2019 eq 13, 14


@triton.jit
def assignment_logits(V, gaussian, D):
    """Return the logits of C ``[I, N]`` in the next iteration, log A + log p(V) (li2019 eq 12)."""
    _, mu, var, cost, logit_A = gaussian
    log_A = tl.minimum(logit_A, 0.0) - tl.log(1.0 + tile.exp(-tl.abs(logit_A)))
    X = V - mu[None, :, :]
    exponent = tl.sum(X * X * (0.5 * tile.reciprocal(var))[None, :, :], 2)
    return (log_A - (cost - 0.5 * D))[None, :] - exponent


@triton.jit
def kept_at(kept, N, D, N_PAD: tl.constexpr, D_PAD: tl.constexpr, RUN: tl.constexpr):
    """Return where r, mu, var, chi / r and logit A of an iteration are kept, and which are real."""
    n = tl.max_contiguous(tl.arange(0, N_PAD), [RUN])
    nd = tl.max_contiguous(n[:, None] * D + tl.arange(0, D_PAD)[None, :], [RUN, D_PAD])
    vectors = kept + 2 * N * D + n
    pointers = vectors, kept + nd, kept + N * D + nd, vectors + N, vectors + 2 * N
    real_nd = tile.in_range(N, D, N_PAD, D_PAD)
    return pointers, (n < N, real_nd, real_nd, n < N, n < N)


@triton.jit
def route(
    V,
    a,
    beta_a,
    beta_u,
    variance_floor,
    lam_step,
    real,
    N,
    D,
    T: tl.constexpr,
    RUN: tl.constexpr,
    kept=None,
    log_sums=None,
):
    """Return the Gaussians of the last iteration, as :func:`m_step` does.

    Those of the others are stored in ``kept [T - 1, N (2 D + 3)]``, if given. C[i,n] after
    iteration t is then exp(logits - log_sums[t, i]); that of the first iteration is 1/N.
    """
    R = tl.where(real, 1.0 / N, 0.0) * a
    for t in range(T - 1):
        lam = 1.0 + t * lam_step
        gaussian = m_step(V, R, lam, beta_a, beta_u, variance_floor, D)
        b = assignment_logits(V, gaussian, D)
        largest, exponential, total = tile.softmax_parts(b, real)
        R = exponential * tile.reciprocal(total) * a
        if kept is not None:
            N_PAD: tl.constexpr = V.shape[1]
            pointers, masks = kept_at(kept + t * N * (2 * D + 3), N, D, N_PAD, V.shape[2], RUN)
            for k in tl.static_range(5):
                tl.store(pointers[k], gaussian[k], mask=masks[k])
            i = tl.arange(0, V.shape[0])[:, None]
            tl.store(log_sums + t * V.shape[0] + i, largest + tl.log(total))
    return m_step(V, R, 1.0 + (T - 1) * lam_step, beta_a, beta_u, variance_floor, D)


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
    V = tile.load_votes(votes, token, I, N, D, I_PAD, N_PAD, D_PAD, RUN)
    a = load_activation(activation, token, I, N, real, PER_PAIR, RUN)
    b_a = tile.load_tile(beta_a + n, n < N)
    b_u = tile.load_tile(beta_u + n, n < N)
    gaussian = route(V, a, b_a, b_u, variance_floor, lam_step, real, N, D, T, RUN)
    A = tl.sigmoid(gaussian[4])
    tile.store_matrix(capsules, token, A[:, None] * gaussian[1], N, D)  # li2019 eq 9


@triton.jit
def m_step_gradient(g_out, g_log_A, g_mu, g_var, gaussian, lam, beta_u, variance_floor):
    """Return the gradient of chi ``[N]``, and those of r, mu and var as R changes them.

    g_out is the gradient of A mu, the others are what the E-step adds to those of log A, mu, var.
    """
    r, mu, var, cost, logit_A = gaussian
    A = tl.sigmoid(logit_A)
    mass = tl.maximum(r, tile.MASS_FLOOR)[:, None]
    # the result A mu, and log A - sum_D log sigma of the E-step
    g_logit_A = (tl.sum(g_out * mu, 1) * A + g_log_A) * tl.sigmoid(-logit_A)
    # logit A = lam (beta_a - beta_u r - chi), chi = cost r
    g_chi = -lam * g_logit_A
    g_r = g_chi * (beta_u + cost)
    g_log_sigma = (g_chi * r - g_log_A)[:, None]
    per_mass = tile.reciprocal(mass)
    g_var = tile.bound(g_var + g_log_sigma * (0.5 * tile.reciprocal(var))) * per_mass
    # X = V - mu, mu = sum_i R V / mass, and sum_i R X = (mass - r) mu
    g_mu += g_out * A[:, None] - 2.0 * g_var * (mass - r[:, None]) * mu
    g_mu = g_mu * per_mass
    # Where r is below its floor, the mass is a constant.
    above = tl.where(r >= tile.MASS_FLOOR, 1.0, 0.0)[:, None]
    g_r += tl.sum((1.0 - above) * g_mu * mu - above * g_var * (var - variance_floor), 1)
    return g_chi, g_r, g_mu, g_var


@triton.jit
def through_m_step(V, R, mu, g_r, g_mu, g_var):
    """Return the gradients of R ``[I, N]``, and of V ``[I, N, D]`` at a constant R."""
    X = V - mu[None, :, :]  # in which the gradient of R is of the second degree
    gR = g_r[None, :] + tl.sum(X * (g_var[None, :, :] * X + g_mu[None, :, :]), 2)
    return gR, R[:, :, None] * (2.0 * X * g_var[None, :, :] + g_mu[None, :, :])


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
    kept,
    log_sums,
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
    BLOCK: tl.constexpr,
):
    """Walk the iterations of one token after another backwards; gX is the gradient of X.

    A token is routed again. Of each iteration what is kept are the Gaussians, and one number an
    input that makes C from them: its gradient then belongs to an input, so that ``BLOCK`` inputs
    at a time are read, from the cache. The gradients of all votes stay in registers.
    The interpreter of Triton 3.6 has no range of a variable, which is a tensor there.
    """
    program = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N_PAD)
    block_i = tl.arange(0, BLOCK)
    b_u = tile.load_tile(beta_u + n, n < N)
    sum_g_beta_a = tl.zeros([N_PAD], tl.float32)
    sum_g_beta_u = tl.zeros([N_PAD], tl.float32)
    kept += program * (T - 1) * N * (2 * D + 3)
    log_sums += program * (T - 1) * I_PAD
    token = program * tokens_per_program
    end = tl.minimum(token + tokens_per_program, tokens)
    while token < end:
        real = tile.in_range(I, N, I_PAD, N_PAD)
        V = tile.load_votes(votes, token, I, N, D, I_PAD, N_PAD, D_PAD, RUN)
        a = load_activation(activation, token, I, N, real, PER_PAIR, RUN)
        tl.debug_barrier()  # other threads have read what is kept
        b_a = tile.load_tile(beta_a + n, n < N)
        gaussian = route(
            V, a, b_a, b_u, variance_floor, lam_step, real, N, D, T, RUN, kept, log_sums
        )
        tl.debug_barrier()  # other threads have written what is kept
        gVs, gas = (), ()
        for _ in tl.static_range(I_PAD // BLOCK):
            gVs += (tl.zeros([BLOCK, N_PAD, D_PAD], tl.float32),)  # type: ignore[assignment]
            gas += (tl.zeros([BLOCK, N_PAD], tl.float32),)  # type: ignore[assignment]
        g_out = tile.load_matrix(g_capsules, token, tile.in_range(N, D, N_PAD, D_PAD), N, D)
        # what the E-step after an iteration adds to the gradients of log A, mu and var
        g_log_A = tl.zeros([N_PAD], tl.float32)
        g_mu = tl.zeros([N_PAD, D_PAD], tl.float32)
        g_var = tl.zeros([N_PAD, D_PAD], tl.float32)
        for back in range(T - 1):
            t = T - 1 - back
            lam = 1.0 + t * lam_step
            g_chi, g_r, g_mu, g_var = m_step_gradient(
                g_out, g_log_A, g_mu, g_var, gaussian, lam, b_u, variance_floor
            )
            sum_g_beta_a -= g_chi
            sum_g_beta_u += g_chi * gaussian[0]
            mu = gaussian[1]
            before, masks = kept_at(kept + (t - 1) * N * (2 * D + 3), N, D, N_PAD, D_PAD, RUN)
            gaussian = (
                tile.load_tile(before[0], masks[0]),
                tile.load_tile(before[1], masks[1]),
                tl.load(before[2], mask=masks[2], other=1.0),
                tile.load_tile(before[3], masks[3]),
                tile.load_tile(before[4], masks[4]),
            )
            precision = tile.reciprocal(gaussian[2])
            g_out = tl.zeros([N_PAD, D_PAD], tl.float32)  # only the last iteration has a result
            g_log_A = tl.zeros([N_PAD], tl.float32)
            sum_gLX = tl.zeros([N_PAD, D_PAD], tl.float32)
            sum_gLXX = tl.zeros([N_PAD, D_PAD], tl.float32)
            gV_blocks, ga_blocks = (), ()
            for block in tl.static_range(I_PAD // BLOCK):
                tl.debug_barrier()  # or the compiler reads all blocks at once
                first = block * BLOCK
                real_b = tile.in_range(I, N, BLOCK, N_PAD, first)
                V_b = tile.load_votes(votes, token, I, N, D, BLOCK, N_PAD, D_PAD, RUN, first)
                a_b = load_activation(activation, token, I, N, real_b, PER_PAIR, RUN, first)
                log_sum = tl.load(log_sums + (t - 1) * I_PAD + first + block_i)[:, None]
                b = assignment_logits(V_b, gaussian, D)
                C = tl.where(real_b, tile.exp(b - log_sum), 0.0)
                gR, gV = through_m_step(V_b, C * a_b, mu, g_r, g_mu, g_var)
                # C = softmax of log A - sum_D (log sigma + X^2 / (2 var)) of the iteration before
                gL = tile.softmax_gradient(gR * a_b, C)
                X = V_b - gaussian[1][None, :, :]
                gLX = gL[:, :, None] * X
                gV += gVs[block] - gLX * precision[None, :, :]
                gV_blocks += (gV,)  # type: ignore[assignment]
                ga_blocks += (gas[block] + gR * C,)  # type: ignore[assignment]
                g_log_A += tl.sum(gL, 0)
                sum_gLX += tl.sum(gLX, 0)
                sum_gLXX += tl.sum(gLX * X, 0)
            gVs, gas = gV_blocks, ga_blocks
            g_mu = sum_gLX * precision
            g_var = sum_gLXX * (0.5 * precision * precision)
        # The names of the first iteration are its own: Triton 3.3 takes others for the loop's.
        g_chi_0, g_r_0, g_mu_0, g_var_0 = m_step_gradient(
            g_out, g_log_A, g_mu, g_var, gaussian, 1.0, b_u, variance_floor
        )
        sum_g_beta_a -= g_chi_0
        sum_g_beta_u += g_chi_0 * gaussian[0]
        for block_0 in tl.static_range(I_PAD // BLOCK):
            first_0 = block_0 * BLOCK
            real_0 = tile.in_range(I, N, BLOCK, N_PAD, first_0)
            V_0 = tile.load_votes(votes, token, I, N, D, BLOCK, N_PAD, D_PAD, RUN, first_0)
            a_0 = load_activation(activation, token, I, N, real_0, PER_PAIR, RUN, first_0)
            C_0 = tl.where(real_0, 1.0 / N, 0.0)
            gR_0, gV_0 = through_m_step(V_0, C_0 * a_0, gaussian[1], g_r_0, g_mu_0, g_var_0)
            tile.store_votes(g_votes, token, gVs[block_0] + gV_0, I, N, D, RUN, first_0)
            if g_activation is not None:
                ga = gas[block_0] + gR_0 * C_0
                if PER_PAIR:
                    tile.store_matrix(g_activation, token, ga, I, N, RUN, first_0)
                else:  # a_in belongs to an input
                    of_input = tl.sum(tl.where(real_0, ga, 0.0), 1)
                    to_input = g_activation + token * I + first_0 + block_i
                    tl.store(to_input, of_input, mask=first_0 + block_i < I)
        token += 1
    tl.store(g_beta_a + program * N + n, sum_g_beta_a, mask=n < N)
    tl.store(g_beta_u + program * N + n, sum_g_beta_u, mask=n < N)

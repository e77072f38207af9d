"""Routing by agreement on a tile: dynamic and simple routing.

The equations are those of :func:`capsnmt.routing.agreement.route_by_agreement`. The logits before
iteration t are b[i,n] = O[n] . V[i,n], where O is the sum of the earlier iterations' capsules: one
capsule tensor stands for all of them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tile import (
    MASS_FLOOR,
    TINY,
    capsule_offsets,
    capsules_in_range,
    load_tile,
    pair_offsets,
    pairs_in_range,
    softmax_gradient,
    softmax_over_outputs,
    tile_arguments,
    vote_offsets,
)


class Agreement(NamedTuple):
    """Launch the kernels of one operator.

    Attributes:
        normalise: divide S[n] by sum_i C[i,n]; the logits are then no result.
        masks: arrange the operator's masks as those of inputs, outputs and dimensions.
    """

    normalise: bool
    masks: Callable[..., Tuple[Optional[Tensor], ...]]

    def forward(
        self, votes: Tensor, *masks: Optional[Tensor], iterations: int
    ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Compute the results of the operator on flat votes ``[tokens, I, N, D]``."""
        tokens, I, N, D = votes.shape
        capsules = votes.new_empty(tokens, N, D)
        logits = None if self.normalise else votes.new_empty(tokens, I, N)
        forward_kernel[(tokens,)](
            votes, *self.masks(*masks), capsules, logits, **self.flags(votes, iterations)
        )
        return capsules if logits is None else (capsules, logits)

    def backward(
        self,
        g_results: Sequence[Optional[Tensor]],
        votes: Tensor,
        *masks: Optional[Tensor],
        iterations: int,
    ) -> Tuple[Optional[Tensor], ...]:
        """Compute the gradients of the arguments; the gradient of an unused result is None."""
        g_capsules, g_logits = (*g_results, None)[:2]
        g_votes = torch.empty_like(votes)
        backward_kernel[(votes.size(0),)](
            votes,
            *self.masks(*masks),
            g_capsules,
            g_logits,
            g_votes,
            **self.flags(votes, iterations),
        )
        return g_votes, *[None for _ in masks]

    def flags(self, votes: Tensor, iterations: int) -> Dict[str, Any]:
        """Return the arguments that both kernels share."""
        return {"T": iterations, "NORMALISE": self.normalise, **tile_arguments(votes)}


SIMPLE = Agreement(True, lambda: (None, None, None))
DYNAMIC = Agreement(False, lambda inputs, outputs: (inputs, outputs, None))
VERTICAL = Agreement(False, lambda queries, keys: (None, queries, keys))


@triton.jit
def real_pairs(input_mask, output_mask, token, I, N, I_PAD: tl.constexpr, N_PAD: tl.constexpr):
    """Return which pairs ``[I, N]`` are not padding and not masked."""
    real = pairs_in_range(I, N, I_PAD, N_PAD)
    i = tl.arange(0, I_PAD)
    n = tl.arange(0, N_PAD)
    if input_mask is not None:
        real_i = tl.load(input_mask + token * I + i, mask=i < I, other=0)
        real = real & (real_i != 0)[:, None]
    if output_mask is not None:
        real_n = tl.load(output_mask + token * N + n, mask=n < N, other=0)
        real = real & (real_n != 0)[None, :]
    return real


@triton.jit
def real_width(width_mask, token, D, D_PAD: tl.constexpr):
    """Return which dimensions ``[1, 1, D]`` of a vote are not padding and not masked."""
    d = tl.arange(0, D_PAD)
    real = d < D
    if width_mask is not None:
        real = real & (tl.load(width_mask + token * D + d, mask=real, other=0) != 0)
    return real[None, None, :]


@triton.jit
def coefficients(O, V, real):
    """Return C = softmax over n of b[i,n] = O[n] . V[i,n]: ``[I, N]``."""
    return softmax_over_outputs(tl.sum(O[None, :, :] * V, 2), real)


@triton.jit
def preactivation(C, V, NORMALISE: tl.constexpr):
    """Return S ``[N, D]``."""
    S = tl.sum(C[:, :, None] * V, 0)  # duan2020 eq 7
    if NORMALISE:
        S = S / tl.maximum(tl.sum(C, 0), MASS_FLOOR)[:, None]  # li2019 eq 7
    return S


@triton.jit
def lengths(S):
    """Return |S| and 1 + |S|^2, ``[N, 1]``; TINY keeps the gradient at 0 finite."""
    squared_length = tl.sum(S * S, 1)[:, None]
    return tl.sqrt(squared_length + TINY), 1.0 + squared_length


@triton.jit
def squash(S):
    """Return squash(S) ``[N, D]`` (li2019 eq 8)."""
    length, denominator = lengths(S)
    return S * (length / denominator)


@triton.jit
def sum_of_capsules(t, V, real, N_PAD: tl.constexpr, D_PAD: tl.constexpr, NORMALISE: tl.constexpr):
    """Return O, the sum of the capsules of iterations 0..t-1: ``[N, D]``."""
    O = tl.zeros([N_PAD, D_PAD], tl.float32)
    for _ in range(t):
        O += squash(preactivation(coefficients(O, V, real), V, NORMALISE))
    return O


@triton.jit
def forward_kernel(
    votes,
    input_mask,
    output_mask,
    width_mask,
    capsules,
    logits,
    I,
    N,
    D,
    T: tl.constexpr,
    NORMALISE: tl.constexpr,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Route one token: read its votes once, write its capsules and logits once."""
    token = tl.program_id(0).to(tl.int64)
    real = real_pairs(input_mask, output_mask, token, I, N, I_PAD, N_PAD)
    real_d = real_width(width_mask, token, D, D_PAD)
    at_votes = token * I * N * D + vote_offsets(N, D, I_PAD, N_PAD, D_PAD)
    V = load_tile(votes + at_votes, real[:, :, None] & real_d)
    O = sum_of_capsules(T - 1, V, real, N_PAD, D_PAD, NORMALISE)
    out = squash(preactivation(coefficients(O, V, real), V, NORMALISE))
    tl.store(
        capsules + token * N * D + capsule_offsets(D, N_PAD, D_PAD),
        out,
        mask=capsules_in_range(N, D, N_PAD, D_PAD),
    )
    if not NORMALISE:  # only dynamic routing returns its logits
        b = tl.sum((O + out)[None, :, :] * V, 2)
        tl.store(
            logits + token * I * N + pair_offsets(N, I_PAD, N_PAD),
            b,
            mask=pairs_in_range(I, N, I_PAD, N_PAD),
        )


@triton.jit
def backward_kernel(
    votes,
    input_mask,
    output_mask,
    width_mask,
    g_capsules,
    g_logits,
    g_votes,
    I,
    N,
    D,
    T: tl.constexpr,
    NORMALISE: tl.constexpr,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Walk the iterations of one token backwards; gX is the gradient of X.

    Nothing is kept from the forward pass: O of iteration t is computed again from the votes.
    """
    token = tl.program_id(0).to(tl.int64)
    real = real_pairs(input_mask, output_mask, token, I, N, I_PAD, N_PAD)
    real_d = real_width(width_mask, token, D, D_PAD)
    at_votes = token * I * N * D + vote_offsets(N, D, I_PAD, N_PAD, D_PAD)
    V = load_tile(votes + at_votes, real[:, :, None] & real_d)
    g_last = tl.zeros([N_PAD, D_PAD], tl.float32)
    if g_capsules is not None:
        g_last = load_tile(
            g_capsules + token * N * D + capsule_offsets(D, N_PAD, D_PAD),
            capsules_in_range(N, D, N_PAD, D_PAD),
        )
    gb = tl.zeros([I_PAD, N_PAD], tl.float32)  # of the logits after iteration t
    if g_logits is not None:
        gb = load_tile(g_logits + token * I * N + pair_offsets(N, I_PAD, N_PAD), real)
    gV = tl.zeros([I_PAD, N_PAD, D_PAD], tl.float32)
    for back in range(T):
        O = sum_of_capsules(T - 1 - back, V, real, N_PAD, D_PAD, NORMALISE)
        C = coefficients(O, V, real)
        S = preactivation(C, V, NORMALISE)
        length, denominator = lengths(S)
        out = S * (length / denominator)
        # b += out . V, and the result out of the last iteration
        g_out = g_last + tl.sum(gb[:, :, None] * V, 0)
        g_last = tl.zeros([N_PAD, D_PAD], tl.float32)
        gV += gb[:, :, None] * out[None, :, :]
        # out = S f(|S|^2), f(x) = sqrt(x) / (1 + x)
        slope = 0.5 / (length * denominator) - length / (denominator * denominator)
        gS = g_out * (length / denominator) + S * (2.0 * slope * tl.sum(S * g_out, 1)[:, None])
        # S = sum_i C V, divided by the mass or not
        centre = tl.zeros([N_PAD, D_PAD], tl.float32)
        if NORMALISE:
            mass = tl.sum(C, 0)[:, None]
            gS = gS / tl.maximum(mass, MASS_FLOOR)
            centre = tl.where(mass >= MASS_FLOOR, S, 0.0)
        gV += C[:, :, None] * gS[None, :, :]
        gC = tl.sum(gS[None, :, :] * (V - centre[None, :, :]), 2)
        gb += softmax_gradient(gC, C)
    tl.store(
        g_votes + at_votes,
        tl.where(real[:, :, None] & real_d, gV, 0.0),
        mask=pairs_in_range(I, N, I_PAD, N_PAD)[:, :, None]
        & (tl.arange(0, D_PAD)[None, None, :] < D),
    )

"""Routing by agreement on a tile: dynamic, simple and inverted routing.

The equations are those of :func:`capsnmt.routing.agreement.route_by_agreement` and of
:mod:`capsnmt.routing.inverted`. The logits before iteration t are b[i,n] = O[n] . V[i,n], where O
is the sum of the earlier iterations' capsules: one capsule tensor stands for all of them. In
inverted routing it is the last iteration's capsules / sqrt(D).
"""

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import triton
import triton.language as tl
from torch import Tensor

from capsnmt.routing.inverted import EPSILON

from . import tile

LAYER_NORM_EPSILON = tl.constexpr(EPSILON)


class Agreement(NamedTuple):
    """Launch the kernels of one operator.

    Attributes:
        normalise: divide S[n] by sum_i C[i,n].
        inverted: inverted routing.
        returns_logits: the logits are a result.
    """

    normalise: bool = False
    inverted: bool = False
    returns_logits: bool = False

    def forward(
        self, votes: Tensor, *masks: Optional[Tensor], iterations: int
    ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        """Compute the results of the operator on flat votes ``[tokens, I, N, D]``."""
        tokens, I, N, D = votes.shape
        capsules = votes.new_empty(tokens, N, D)
        logits = votes.new_empty(tokens, I, N) if self.returns_logits else None
        forward_kernel[(tokens,)](
            votes, *(masks or (None, None)), capsules, logits, **self.flags(votes, iterations)
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
            *(masks or (None, None)),
            g_capsules,
            g_logits,
            g_votes,
            **self.flags(votes, iterations),
        )
        return g_votes, *[None for _ in masks]

    def flags(self, votes: Tensor, iterations: int) -> Dict[str, Any]:
        """Return the arguments that both kernels share."""
        which = {"NORMALISE": self.normalise, "INVERTED": self.inverted}
        return {"T": iterations, **which, **tile.tile_arguments(votes)}


SIMPLE = Agreement(normalise=True)
INVERTED = Agreement(inverted=True)
DYNAMIC = Agreement(returns_logits=True)


@triton.jit
def real_pairs(input_mask, output_mask, token, I, N, I_PAD: tl.constexpr, N_PAD: tl.constexpr):
    """Return which pairs ``[I, N]`` are not padding and not masked."""
    real_i = tile.real_positions(input_mask, token, I, I_PAD)
    return real_i[:, None] & tile.real_positions(output_mask, token, N, N_PAD)[None, :]


@triton.jit
def load_votes(votes, masks, token, real, I, N, D, D_PAD: tl.constexpr, RUN: tl.constexpr):
    """Load the votes of a token, 0 where they are masked: what is read there may be NaN."""
    V = tile.load_votes(votes, token, I, N, D, real.shape[0], real.shape[1], D_PAD, RUN)
    if masks[0] is None and masks[1] is None:
        return V
    return tl.where(real[:, :, None], V, 0.0)


@triton.jit
def preactivation(C, V, NORMALISE: tl.constexpr):
    """Return S ``[N, D]``."""
    S = tl.sum(C[:, :, None] * V, 0)  # duan2020 eq 7
    if NORMALISE:
        S = S * tile.reciprocal(tl.maximum(tl.sum(C, 0), tile.MASS_FLOOR))[:, None]  # li2019 eq 7
    return S


@triton.jit
def lengths(S):
    """Return |S| and 1 + |S|^2, ``[N, 1]``; TINY keeps the gradient at 0 finite."""
    squared_length = tl.sum(S * S, 1)[:, None]
    return tl.sqrt(squared_length + tile.TINY), 1.0 + squared_length


@triton.jit
def squash(S):
    """Return squash(S) ``[N, D]`` (li2019 eq 8)."""
    length, denominator = lengths(S)
    return S * (length * tile.reciprocal(denominator))


@triton.jit
def normalisation(S, D, D_PAD: tl.constexpr):
    """Return LayerNorm(S) over D without padding ``[N, D]``, and what it divides by ``[N, 1]``."""
    real = (tl.arange(0, D_PAD) < D)[None, :]
    centred = tl.where(real, S - (tl.sum(S, 1) / D)[:, None], 0.0)
    variance = tl.sum(centred * centred, 1)[:, None] / D
    inverse = 1.0 / tl.sqrt(variance + LAYER_NORM_EPSILON)
    return centred * inverse, inverse


@triton.jit
def capsules_of(S, D, D_PAD: tl.constexpr, INVERTED: tl.constexpr):
    """Return the capsules out ``[N, D]``; inverted routing does not normalise one number."""
    if not INVERTED:
        return squash(S)
    if D_PAD == 1:
        return S
    out, _ = normalisation(S, D, D_PAD)
    return out


@triton.jit
def uniform(real):
    """Return C ``[I, N]`` of the first iteration, whose logits are 0."""
    count = tl.sum(real.to(tl.float32), 1)
    return tl.where(real, tile.reciprocal(tl.maximum(count, 1.0))[:, None], 0.0)


@triton.jit
def coefficients(t, V, real, D, NORMALISE: tl.constexpr, INVERTED: tl.constexpr):
    """Return C ``[I, N]`` of iteration t, and O ``[N, D]`` that gave it.

    O is the sum of the capsules of iterations 0..t-1, or the last ones, scaled.
    """
    O = tl.zeros([V.shape[1], V.shape[2]], tl.float32)
    C = uniform(real)
    for _ in range(t):
        out = capsules_of(preactivation(C, V, NORMALISE), D, V.shape[2], INVERTED)
        O = out * scale_of(D) if INVERTED else O + out
        C = tile.softmax_over_outputs(tl.sum(O[None, :, :] * V, 2), real)
    return C, O


@triton.jit
def scale_of(D):
    """Return 1 / sqrt(D)."""
    return 1.0 / tl.sqrt(D * 1.0)


@triton.jit
def capsules_gradient(g_out, S, D, D_PAD: tl.constexpr, INVERTED: tl.constexpr):
    """Return the gradient of S ``[N, D]``."""
    if INVERTED:
        if D_PAD == 1:
            return g_out
        out, inverse = normalisation(S, D, D_PAD)
        mean = tl.sum(g_out, 1)[:, None] / D
        along = tl.sum(g_out * out, 1)[:, None] / D
        real = (tl.arange(0, D_PAD) < D)[None, :]
        return tl.where(real, (g_out - mean - out * along) * inverse, 0.0)
    return squash_gradient(g_out, S)


@triton.jit
def squash_gradient(g_out, S):
    """Return the gradient of S ``[N, D]``; out = S f(|S|^2), f(x) = sqrt(x) / (1 + x)."""
    length, denominator = lengths(S)
    slope = 0.5 / (length * denominator) - length / (denominator * denominator)
    return g_out * (length / denominator) + S * (2.0 * slope * tl.sum(S * g_out, 1)[:, None])


@triton.jit
def preactivation_gradient(g_out, C, V, D, NORMALISE: tl.constexpr, INVERTED: tl.constexpr):
    """Return the gradient of sum_i C[i,n] V[i,n], and what it is relative to: ``[N, D]`` both.

    S is that sum, divided by the mass or not: C then changes it by V - S.
    """
    S = preactivation(C, V, NORMALISE)
    gS = capsules_gradient(g_out, S, D, V.shape[2], INVERTED)
    centre = tl.zeros(S.shape, tl.float32)
    if NORMALISE:
        mass = tl.sum(C, 0)[:, None]
        gS = gS * tile.reciprocal(tl.maximum(mass, tile.MASS_FLOOR))
        centre = tl.where(mass >= tile.MASS_FLOOR, S, 0.0)
    return gS, centre


@triton.jit
def forward_kernel(
    votes,
    input_mask,
    output_mask,
    capsules,
    logits,
    I,
    N,
    D,
    T: tl.constexpr,
    NORMALISE: tl.constexpr,
    INVERTED: tl.constexpr,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
    RUN: tl.constexpr,
):
    """Route one token: read its votes once, write its capsules and logits once."""
    token = tl.program_id(0).to(tl.int64)
    real = real_pairs(input_mask, output_mask, token, I, N, I_PAD, N_PAD)
    V = load_votes(votes, (input_mask, output_mask), token, real, I, N, D, D_PAD, RUN)
    C, O = coefficients(T - 1, V, real, D, NORMALISE, INVERTED)
    out = capsules_of(preactivation(C, V, NORMALISE), D, D_PAD, INVERTED)
    tile.store_matrix(capsules, token, tile.rounded(out, capsules), N, D)
    if logits is not None:
        b = tl.sum((O + out)[None, :, :] * V, 2)
        tile.store_matrix(logits, token, tile.rounded(b, logits), I, N, RUN)


@triton.jit
def backward_kernel(
    votes,
    input_mask,
    output_mask,
    g_capsules,
    g_logits,
    g_votes,
    I,
    N,
    D,
    T: tl.constexpr,
    NORMALISE: tl.constexpr,
    INVERTED: tl.constexpr,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
    RUN: tl.constexpr,
):
    """Walk the iterations of one token backwards; gX is the gradient of X.

    Nothing is kept from the forward pass: O of iteration t is computed again from the votes.
    """
    token = tl.program_id(0).to(tl.int64)
    real = real_pairs(input_mask, output_mask, token, I, N, I_PAD, N_PAD)
    V = load_votes(votes, (input_mask, output_mask), token, real, I, N, D, D_PAD, RUN)
    g_last = tl.zeros([N_PAD, D_PAD], tl.float32)
    if g_capsules is not None:
        g_last = tile.load_matrix(g_capsules, token, tile.in_range(N, D, N_PAD, D_PAD), N, D)
    gV = tl.zeros([I_PAD, N_PAD, D_PAD], tl.float32)
    gO = tl.zeros([N_PAD, D_PAD], tl.float32)  # what the iterations after t add to it
    if g_logits is not None:  # the logits are O . V after the last iteration
        gb = tile.load_matrix(g_logits, token, real, I, N, RUN)
        C, O = coefficients(T - 1, V, real, D, NORMALISE, INVERTED)
        O += capsules_of(preactivation(C, V, NORMALISE), D, D_PAD, INVERTED)
        gV += gb[:, :, None] * O[None, :, :]
        gO += tl.sum(gb[:, :, None] * V, 0)
    for back in range(T - 1):
        C, O = coefficients(T - 1 - back, V, real, D, NORMALISE, INVERTED)
        # out is a result, and a part of every later O; if inverted, the next O but for its scale
        gS, centre = preactivation_gradient(g_last + gO, C, V, D, NORMALISE, INVERTED)
        g_last = tl.zeros([N_PAD, D_PAD], tl.float32)
        gV += C[:, :, None] * gS[None, :, :]
        tl.debug_barrier()  # read again: kept, the votes would take the registers of gV
        V = load_votes(votes, (input_mask, output_mask), token, real, I, N, D, D_PAD, RUN)
        gC = tl.sum(gS[None, :, :] * (V - centre[None, :, :]), 2)
        # C = softmax over n of b = O . V
        gb = tile.softmax_gradient(gC, C)
        gV += gb[:, :, None] * O[None, :, :]
        tl.debug_barrier()  # and again
        V = load_votes(votes, (input_mask, output_mask), token, real, I, N, D, D_PAD, RUN)
        added = tl.sum(gb[:, :, None] * V, 0)
        gO = added * scale_of(D) if INVERTED else gO + added
    C = uniform(real)
    gS, _ = preactivation_gradient(g_last + gO, C, V, D, NORMALISE, INVERTED)
    gV += C[:, :, None] * gS[None, :, :]
    tile.store_votes(g_votes, token, tl.where(real[:, :, None], gV, 0.0), I, N, D, RUN)

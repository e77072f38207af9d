"""Vertical routing: dynamic routing that reads one input capsule, a head, after another.

The equations are those of :mod:`.agreement`. The votes of a sentence, heads x queries x keys, are
more than the registers hold, and those of a head ``[N, D]`` are few. A program reads them from the
cache wherever it needs them; what it keeps is capsules.
"""

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from . import tile
from .agreement import squash, squash_gradient
from .launch import padded

RUN = tl.constexpr(8)
"""Keys that a thread reads at once. Rows are padded to a multiple of it, as most sums are over
keys: where lanes have single ones they take three times the instructions."""


def aligned(tensor: Tensor) -> Tensor:
    """Return a tensor with rows of a multiple of RUN, as the kernels address it."""
    return F.pad(tensor, (0, -tensor.size(-1) % RUN.value))


def sizes(scores: Tensor, iterations: int) -> Dict[str, Any]:
    """Return the arguments that both kernels share; a thread has RUN elements of a head's votes."""
    _, I, N, D = scores.shape
    pads = padded(N), max(padded(D), RUN.value)
    warp = 64 if torch.version.hip else 32
    return {
        **{"N": N, "D": D, "RUNS": triton.cdiv(D, RUN.value), "I": I, "T": iterations},
        **dict(zip(("N_PAD", "D_PAD"), pads)),
        "num_warps": min(max(pads[0] * pads[1] // RUN.value, warp), 512) // warp,
    }


def forward(
    scores: Tensor, queries: Optional[Tensor], keys: Optional[Tensor], *, iterations: int
) -> Tuple[Tensor, Tensor]:
    """Compute the capsules ``[sentences, N, D]`` and the logits ``[sentences, I, N]``."""
    sentences, I, N, D = scores.shape
    votes, logits = aligned(scores), scores.new_empty(sentences, I, N)
    capsules = torch.empty_like(votes[:, 0])
    forward_kernel[(sentences,)](
        votes, queries, keys, capsules, logits, **sizes(scores, iterations)
    )
    return capsules[..., :D], logits


def backward(
    g_results: Sequence[Optional[Tensor]],
    scores: Tensor,
    queries: Optional[Tensor],
    keys: Optional[Tensor],
    *,
    iterations: int,
) -> Tuple[Tensor, None, None]:
    """Compute the gradient of the scores; that of an unused result is None."""
    sentences, I, N, D = scores.shape
    votes = aligned(scores)
    g_votes = torch.empty_like(votes)
    pairs = scores.new_empty(2, sentences, iterations, I, N, dtype=torch.float32)
    g_capsules, g_logits = (*g_results, None)[:2]
    backward_kernel[(sentences,)](
        votes,
        queries,
        keys,
        None if g_capsules is None else aligned(g_capsules),
        g_logits,
        g_votes,
        *pairs,
        **sizes(scores, iterations),
    )
    return g_votes[..., :D], None, None


@triton.jit
def votes_of(i, votes, N, width, real, N_PAD: tl.constexpr, D_PAD: tl.constexpr):
    """Return the votes of a head in fp32; 0 where not real."""
    in_range = tile.in_range(N, width, N_PAD, D_PAD)
    return tl.where(real, tile.load_matrix(votes, i, in_range, N, width), 0.0)


@triton.jit
def coefficients(O, V, real_n):
    """Return C = softmax over n of b[n] = O[n] . V[n]: ``[N]``."""
    return tile.softmax_over_outputs(tl.sum(O * V, 1), real_n)


@triton.jit
def preactivation(O, votes, real, real_n, N, width, I: tl.constexpr):
    """Return S = sum_i C[i,n] V[i,n]: ``[N, D]`` (duan2020 eq 7)."""
    S = tl.zeros(O.shape, tl.float32)
    for i in range(I):
        V = votes_of(i, votes, N, width, real, O.shape[0], O.shape[1])
        S += coefficients(O, V, real_n)[:, None] * V
    return S


# The sizes are those of sentences, others in every batch: one build serves all up to a power of 2.
@triton.jit(do_not_specialize=["N", "D", "RUNS"])
def forward_kernel(
    votes,
    query_mask,
    key_mask,
    capsules,
    logits,
    N,
    D,
    RUNS,
    I: tl.constexpr,
    T: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Route one sentence."""
    sentence = tl.program_id(0).to(tl.int64)
    width = RUNS * RUN  # of a row, which Triton sees to be aligned
    real_n = tile.real_positions(query_mask, sentence, N, N_PAD)
    real = real_n[:, None] & tile.real_positions(key_mask, sentence, D, D_PAD)[None, :]
    votes += sentence * I * N * width
    O = tl.zeros([N_PAD, D_PAD], tl.float32)
    out = O
    for _ in range(T):
        out = squash(preactivation(O, votes, real, real_n, N, width, I))
        O += out
    tile.store_matrix(capsules, sentence, out, N, width)
    n = tl.arange(0, N_PAD)
    for i in range(I):
        b = tl.sum(O * votes_of(i, votes, N, width, real, N_PAD, D_PAD), 1)
        tl.store(logits + (sentence * I + i) * N + n, tile.rounded(b, logits), mask=n < N)


@triton.jit(do_not_specialize=["N", "D", "RUNS"])
def backward_kernel(
    votes,
    query_mask,
    key_mask,
    g_capsules,
    g_logits,
    g_votes,
    C_pairs,
    gb_pairs,
    N,
    D,
    RUNS,
    I: tl.constexpr,
    T: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
):
    """Walk the iterations of one sentence backwards; gX is the gradient of X.

    O, S and gS of every iteration stay in registers, C and gb go through memory. With them
    gV[i] = sum_t C[i] gS + gb[i] O needs the votes no more.
    """
    sentence = tl.program_id(0).to(tl.int64)
    width = RUNS * RUN  # of a row, which Triton sees to be aligned
    real_n = tile.real_positions(query_mask, sentence, N, N_PAD)
    real = real_n[:, None] & tile.real_positions(key_mask, sentence, D, D_PAD)[None, :]
    votes += sentence * I * N * width
    n = tl.arange(0, N_PAD)
    in_logits = sentence * I * N + n
    in_pairs = sentence * T * I * N + n
    Os, Ss, gSs = (), (), ()
    O = tl.zeros([N_PAD, D_PAD], tl.float32)
    for _ in tl.static_range(T):
        S = preactivation(O, votes, real, real_n, N, width, I)
        Os += (O,)  # type: ignore[assignment]  # it grows
        Ss += (S,)  # type: ignore[assignment]
        O += squash(S)
    g_out = tl.zeros([N_PAD, D_PAD], tl.float32)
    if g_capsules is not None:
        in_range = tile.in_range(N, width, N_PAD, D_PAD)
        g_out = tile.load_matrix(g_capsules, sentence, in_range, N, width)
    gO = tl.zeros([N_PAD, D_PAD], tl.float32)  # what the iterations after t add to it
    if g_logits is not None:  # the logits are O . V after the last iteration
        for i in range(I):
            gb = tile.load_tile(g_logits + in_logits + i * N, real_n)
            gO += gb[:, None] * votes_of(i, votes, N, width, real, N_PAD, D_PAD)
    for back in tl.static_range(T):
        gS = squash_gradient(g_out + gO, Ss[T - 1 - back])
        gSs += (gS,)  # type: ignore[assignment]  # the last iteration is the first
        for i in range(I):
            V = votes_of(i, votes, N, width, real, N_PAD, D_PAD)
            C = coefficients(Os[T - 1 - back], V, real_n)
            gb = tile.softmax_gradient(tl.sum(gS * V, 1), C)
            gO += gb[:, None] * V
            pair = in_pairs + ((T - 1 - back) * I + i) * N
            tl.store(C_pairs + pair, C, mask=n < N)
            tl.store(gb_pairs + pair, gb, mask=n < N)
        g_out = tl.zeros([N_PAD, D_PAD], tl.float32)
    tl.debug_barrier()  # other threads have written C and gb
    for i in range(I):
        gV = tl.zeros([N_PAD, D_PAD], tl.float32)
        if g_logits is not None:
            gV = tile.load_tile(g_logits + in_logits + i * N, real_n)[:, None] * O
        for t in tl.static_range(T):
            pair = in_pairs + (t * I + i) * N
            gV += tile.load_tile(C_pairs + pair, n < N)[:, None] * gSs[T - 1 - t]
            gV += tile.load_tile(gb_pairs + pair, n < N)[:, None] * Os[t]
        tile.store_matrix(g_votes, sentence * I + i, tl.where(real, gV, 0.0), N, width)

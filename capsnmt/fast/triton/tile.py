"""Tiles: the votes of one token in registers, and what all routing kernels do with them.

Shapes in the comments are the padded ones: I, N and D are rounded up to powers of two, as Triton
requires, and ``real`` is true where a tile holds a vote.
"""

import math
from typing import Any, Dict

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from capsnmt.routing.numerics import MASS_FLOOR as MASS

from .launch import interprets, padded, threads_of

MASS_FLOOR = tl.constexpr(MASS)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
BOUND = tl.constexpr(torch.finfo(torch.float32).max ** 0.25)
LARGEST_HALF = tl.constexpr(torch.finfo(torch.float16).max)
LOG2_E = tl.constexpr(math.log2(math.e))
INTERPRETED = tl.constexpr(interprets())


def tile_arguments(votes: Tensor) -> Dict[str, Any]:
    """Return the kernel arguments that describe the tile of ``votes [tokens, I, N, D]``.

    Sizes are constants of a build. At D = 1 a thread has two consecutive capsules, or more if it
    would have all inputs of fewer. Left to itself Triton reads 16 bytes a thread: warps then share
    a capsule, and each sum over its inputs goes through shared memory.
    """
    I, N, D = votes.shape[1:]
    pads = padded(I), padded(N), padded(D)
    warp = 64 if torch.version.hip else 32
    threads = max(threads_of(math.prod(pads)), warp)
    return {
        **dict(zip(("I", "N", "D"), map(tl.constexpr, (I, N, D)))),
        **dict(zip(("I_PAD", "N_PAD", "D_PAD"), pads)),
        "RUN": min(max(2, pads[1] // threads), pads[1]) if D == 1 else 1,
        "num_warps": threads // warp,
    }


@triton.jit
def real_positions(mask, token, size, SIZE_PAD: tl.constexpr):
    """Return which positions are neither padding of the tile nor masked."""
    position = tl.arange(0, SIZE_PAD)
    real = position < size
    if mask is not None:
        real = real & (tl.load(mask + token * size + position, mask=real, other=0) != 0)
    return real


@triton.jit
def in_range(rows, columns, R_PAD: tl.constexpr, C_PAD: tl.constexpr, first=0):
    """Return which elements of a matrix ``[rows, columns]``, from a first row, are not padding."""
    row = first + tl.arange(0, R_PAD)
    return (row[:, None] < rows) & (tl.arange(0, C_PAD)[None, :] < columns)


@triton.jit
def vote_pointers(
    votes,
    token,
    I,
    N,
    D,
    I_PAD: tl.constexpr,
    ND_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
    RUN: tl.constexpr,
    first,
):
    """Return the pointers ``[I, N D]`` to V[i,n,d] of a token, and which are not padding.

    Triton gives a thread votes that are next to each other: no more than ``RUN`` capsules, it is
    told here. With three axes its versions disagree how to order those along which they are not.
    A mask of three axes, reshaped, would have it read and write one vote after another.
    """
    i = first + tl.arange(0, I_PAD)[:, None]
    nd = tl.arange(0, ND_PAD)
    inputs = votes + token * I * N * D + i * N * D
    pointers = tl.max_contiguous(inputs + (nd // D_PAD * D + nd % D_PAD)[None, :], [1, RUN * D_PAD])
    return pointers, (i < I) & ((nd // D_PAD < N) & (nd % D_PAD < D))[None, :]


@triton.jit
def load_votes(
    votes,
    token,
    I,
    N,
    D,
    I_PAD: tl.constexpr,
    N_PAD: tl.constexpr,
    D_PAD: tl.constexpr,
    RUN: tl.constexpr,
    first=0,
):
    """Load the votes ``[I, N, D]`` of a token, from a first input, in fp32; 0 as padding."""
    ND_PAD: tl.constexpr = N_PAD * D_PAD
    pointers, real = vote_pointers(votes, token, I, N, D, I_PAD, ND_PAD, D_PAD, RUN, first)
    return tl.reshape(load_tile(pointers, real), [I_PAD, N_PAD, D_PAD])


@triton.jit
def store_votes(votes, token, V, I, N, D, RUN: tl.constexpr, first=0):
    """Store the votes ``[I, N, D]`` of a token, from a first input."""
    I_PAD: tl.constexpr = V.shape[0]
    D_PAD: tl.constexpr = V.shape[2]
    ND_PAD: tl.constexpr = V.shape[1] * D_PAD
    pointers, real = vote_pointers(votes, token, I, N, D, I_PAD, ND_PAD, D_PAD, RUN, first)
    tl.store(pointers, tl.reshape(V, pointers.shape), mask=real)


@triton.jit
def matrix_pointers(
    matrix, token, rows, columns, R_PAD: tl.constexpr, C_PAD: tl.constexpr, RUN: tl.constexpr
):
    """Return the pointers to the matrix ``[rows, columns]`` of a token."""
    offsets = tl.arange(0, R_PAD)[:, None] * columns + tl.arange(0, C_PAD)[None, :]
    if RUN > 0:  # in the layout of the votes
        offsets = tl.max_contiguous(offsets, [1, RUN])
    return matrix + token * rows * columns + offsets


@triton.jit
def load_matrix(matrix, token, real, rows, columns, RUN: tl.constexpr = 0, first=0):
    """Load the matrix of a token, from a first row, in fp32; 0 where not real.

    It is one of capsules or, with ``RUN``, of pairs.
    """
    start = matrix + first * columns
    pointers = matrix_pointers(start, token, rows, columns, real.shape[0], real.shape[1], RUN)
    return load_tile(pointers, real)


@triton.jit
def store_matrix(matrix, token, x, rows, columns, RUN: tl.constexpr = 0, first=0):
    """Store the matrix of a token, from a first row: capsules or, with ``RUN``, pairs."""
    start = matrix + first * columns
    pointers = matrix_pointers(start, token, rows, columns, x.shape[0], x.shape[1], RUN)
    mask = in_range(rows, columns, x.shape[0], x.shape[1], first)
    tl.store(pointers, x, mask=mask)


@triton.jit
def load_tile(pointer, mask):
    """Load in fp32; 0 where masked."""
    return tl.load(pointer, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def rounded(x, pointer):
    """Return what is stored there: in fp16, within its range (numerics.rounded); NaN stays."""
    if pointer.dtype.element_ty == tl.float16:
        x = tl.where(x > LARGEST_HALF, LARGEST_HALF, tl.where(x < -LARGEST_HALF, -LARGEST_HALF, x))
    return x


@triton.jit
def exp(x):
    """Return e^x in two instructions of a GPU, where Triton's own takes five: denormals are 0."""
    if INTERPRETED:
        return tl.exp(x)
    return libdevice.exp2(x * LOG2_E)


@triton.jit
def reciprocal(x):
    """Return 1/x in one instruction of a GPU, and 0 from 2^126."""
    if INTERPRETED:
        return 1.0 / x
    return libdevice.fast_dividef(1.0, x)


@triton.jit
def softmax_parts(b, real):
    """Return the largest of ``b [..., N]``, e^(b - largest), 0 at other than real pairs, its sum.

    The sum is at least 1 where a row has a real pair; where it has none, C is to be 0.
    """
    b = tl.where(real, b, LOWEST)
    largest = tl.max(b, -1, keep_dims=True)
    exponential = tl.where(real, exp(b - largest), 0.0)
    return largest, exponential, tl.maximum(tl.sum(exponential, -1, keep_dims=True), 1.0)


@triton.jit
def softmax_over_outputs(b, real):
    """Return C = softmax over n of ``b [..., N]``; 0 at other than real pairs."""
    _, exponential, total = softmax_parts(b, real)
    return exponential * reciprocal(total)


@triton.jit
def bound(gradient):
    """Bound a gradient between iterations, as :func:`capsnmt.routing.numerics.bound_gradient`."""
    return tl.minimum(tl.maximum(gradient, -BOUND), BOUND)


@triton.jit
def softmax_gradient(gC, C):
    """Return the gradient of the logits of C; the gradient of C is bounded."""
    gC = bound(gC)
    return C * (gC - tl.sum(C * gC, -1, keep_dims=True))

"""What a step of beam search on a CPU does beside its linear maps.

``decoding.cpp`` computes it. Without a compiler, and in fp64, torch does the same.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Tuple

import torch
from torch import Tensor

from capsnmt.fast.cpp import build


def is_compiled(x: Tensor) -> bool:
    """Return whether the kernels compute with numbers such as these."""
    return x.dtype == torch.float32 and build.is_built("decoding")


@functools.cache
def kernel(name: str, arguments: int) -> Any:
    """Return a kernel that takes so many numbers and addresses."""
    function = getattr(build.library("decoding"), name)
    function.argtypes = [ctypes.c_int64] * arguments
    return function


def choose(
    logits: Tensor, totals: Tensor, k: int, pad: int, never: int, only: int
) -> Tuple[Tensor, Tensor, Tensor]:
    """Return scores, words and hypotheses of the k best continuations of each sentence, ``[B, k]``.

    Args:
        logits: ``[B beam, V]``.
        totals: scores of the hypotheses, ``[B, beam]``.
        k: candidates of a sentence.
        pad: a word that is not chosen.
        never: another one; -1 is no word.
        only: the one word that may be chosen; -1: all.
    """
    sentences, beam = totals.shape
    size = logits.size(-1)
    if is_compiled(logits):
        scores = logits.new_empty(sentences, k)
        words = torch.empty(sentences, k, dtype=torch.long, device="cpu")
        beams = torch.empty_like(words)
        totals = totals.contiguous()
        kernel("choose", 13)(
            *(logits.data_ptr(), totals.data_ptr(), sentences, beam, size, k, pad, never, only),
            *(scores.data_ptr(), words.data_ptr(), beams.data_ptr(), torch.get_num_threads()),
        )
        return scores, words, beams
    lprobs = torch.log_softmax(logits, -1, dtype=torch.float32)
    lprobs[:, pad] = -torch.inf
    if never >= 0:
        lprobs[:, never] = -torch.inf
    if only >= 0:
        lprobs[:, :only] = -torch.inf
        lprobs[:, only + 1 :] = -torch.inf
    every = lprobs.view(sentences, beam, size).add_(totals.unsqueeze(-1)).flatten(1)
    scores, places = every.topk(k)
    return scores, places % size, places.div(size, rounding_mode="floor")


def attend(projected: Tensor, keys: Tensor, values: Tensor, mask: Tensor, appends: bool) -> Tensor:
    """Return the heads ``[B k, d]`` of queries that attend to the slots of their sentence.

    Args:
        projected: queries ``[B k, d]``; if ``appends``, ``[B k, 3 d]`` with the keys and values
            that are first written into the last k slots.
        keys: ``[B, H, room, d_h]``, of which the first S slots are attended to.
        values: of the same shape.
        mask: ``[B, k or 1, S]``, 0 at the slots that a hypothesis sees, otherwise negative.
        appends: whether there are keys and values to write.
    """
    projected = projected.float() if projected.dtype == torch.bfloat16 else projected
    sentences, heads, room, width = keys.shape
    slots, d = mask.size(-1), heads * width
    rows = projected.size(0) // sentences
    if is_compiled(projected):
        output = projected.new_empty(projected.size(0), d)
        given = projected.data_ptr(), projected.size(1), keys.data_ptr(), values.data_ptr()
        sizes = sentences, heads, rows, slots, room, width
        if kernel("attend", 15)(
            *(*given, mask.data_ptr(), mask.size(1), *sizes, appends, output.data_ptr()),
            torch.get_num_threads(),
        ):
            raise MemoryError(f"no memory to attend to {slots} words")
        return output
    q, *new = projected.view(sentences, rows, -1, heads, width).permute(2, 0, 3, 1, 4)
    keys, values = keys[:, :, :slots], values[:, :, :slots]
    if appends:
        keys[:, :, slots - rows :], values[:, :, slots - rows :] = new
    scores = q @ keys.transpose(-1, -2) + mask.unsqueeze(1)
    return (torch.softmax(scores, -1) @ values).transpose(1, 2).reshape(-1, d)

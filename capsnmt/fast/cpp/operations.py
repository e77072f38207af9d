"""What C++ computes in place of torch's operations: of the loss, a search, values over depth.

Without a compiler, in other precisions, and where torch must see each operation, torch does the
same.
"""

import ctypes
from typing import Optional, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.modules import shortcuts
from capsnmt.routing.tracing import is_watched

from . import build


def runs(library: str, reads: bool, *tensors: Tensor) -> bool:
    """Return whether a library takes a call that it ``reads``: of tensors of a CPU, unwatched."""
    own = reads and all(x.device.type == "cpu" for x in tensors) and not is_watched(tensors)
    return own and build.is_built(library)


def softmax_(scores: Tensor, words: Tensor) -> Tensor:
    """Put the softmax in place of scores: :func:`capsnmt.modules.shortcuts.softmax_`."""
    reads = scores.dtype in build.PRECISIONS and scores.is_contiguous() and not scores.requires_grad
    if not runs("loss", reads, scores, words):
        return shortcuts.softmax_(scores, words)
    nll = scores.new_empty(words.shape, dtype=torch.float32)
    words = words.contiguous()
    build.kernel("loss", "softmax", integers=7)(
        *(scores.data_ptr(), words.data_ptr(), *scores.shape, scores.dtype == torch.bfloat16),
        *(nll.data_ptr(), torch.get_num_threads()),
    )
    return nll


def mix_over_depth(query: Tensor, values: Sequence[Tensor]) -> Optional[Tensor]:
    """Return ``depth_mixture`` of a query ``[d]`` and values ``[.., d]``, or None: torch's is due.

    It is so in other precisions than fp32, and where autograd follows.
    """
    every = (query, *values)
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in every)
    own = all(x.dtype == torch.float32 for x in every) and not trained
    own = own and query.shape == values[0].shape[-1:] and len({x.shape for x in values}) == 1
    if not runs("depth", own, *every):
        return None
    query, *values = (x.contiguous() for x in every)
    output, size = torch.empty_like(values[0]), query.numel()
    rows = output.numel() // max(1, size)
    scores = output.new_empty(rows, len(values))
    addresses = (ctypes.c_void_p * len(values))(*(x.data_ptr() for x in values))
    build.kernel("depth", "mixture", ctypes.c_void_p, integers=7)(
        *(addresses, len(values), query.data_ptr(), rows, size),
        *(scores.data_ptr(), output.data_ptr(), torch.get_num_threads()),
    )
    return output


def choose(
    logits: Tensor, totals: Tensor, k: int, pad: int, never: int, only: int, normal: bool = False
) -> Tuple[Tensor, Tensor, Tensor]:
    """Return scores, words and hypotheses of the k best continuations of each sentence, ``[B, k]``.

    Args:
        logits: ``[B beam, V]``; or, if ``normal``, log-probabilities, which stay as they are.
        totals: scores of the hypotheses, ``[B, beam]``, in fp32.
        k: candidates of a sentence.
        pad: a word that is not chosen.
        never: another one; -1 is no word.
        only: the one word that may be chosen; -1: all.
    """
    sentences, beam = totals.shape
    size = logits.size(-1)
    if runs("decoding", logits.dtype in build.PRECISIONS, logits, totals):
        scores = totals.new_empty(sentences, k)
        words = torch.empty(sentences, k, dtype=torch.long, device="cpu")
        beams = torch.empty_like(words)
        logits, totals = logits.contiguous(), totals.contiguous()
        build.kernel("decoding", "choose", integers=15)(
            *(logits.data_ptr(), totals.data_ptr(), sentences, beam, size, k, pad, never, only),
            *(normal, logits.dtype == torch.bfloat16, scores.data_ptr(), words.data_ptr()),
            *(beams.data_ptr(), torch.get_num_threads()),
        )
        return scores, words, beams
    logits = logits if logits.dtype == torch.float64 else logits.float()
    lprobs = logits.clone() if normal else torch.log_softmax(logits, -1, dtype=torch.float32)
    lprobs[:, pad] = -torch.inf
    if never >= 0:
        lprobs[:, never] = -torch.inf
    if only >= 0:
        lprobs[:, :only] = -torch.inf
        lprobs[:, only + 1 :] = -torch.inf
    every = lprobs.view(sentences, beam, size).add_(totals.unsqueeze(-1)).flatten(1)
    scores, places = every.topk(k)
    return scores, places % size, places.div(size, rounding_mode="floor")


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float) -> Tensor:
    """Return the heads of queries that attend to slots: :func:`capsnmt.modules.shortcuts.attend`.

    The kernel reads only the slots that a hypothesis sees.
    """
    tensors = (q, k, v) if mask is None else (q, k, v, mask)
    if not runs(
        "decoding", q.dtype in build.PRECISIONS and q.dtype == k.dtype == v.dtype, *tensors
    ):
        return shortcuts.attend(q, k, v, mask, scale)
    if mask is not None:
        mask = (mask if mask.dim() == 3 else mask.unsqueeze(1)).float().contiguous()
    sentences, heads, rows, width = q.shape
    k = k.expand(sentences, heads, -1, width)  # as torch broadcasts them
    v = v.expand(sentences, heads, k.size(2), -1)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    output = q.new_empty(sentences, rows, heads, v.size(-1), dtype=torch.float32)
    if build.kernel("decoding", "attend", ctypes.c_double, integers=23)(
        *(scale, q.data_ptr(), k.data_ptr(), v.data_ptr(), 0 if mask is None else mask.data_ptr()),
        *(0 if mask is None else mask.size(1), sentences, heads, rows, k.size(2), width),
        *(v.size(-1), *q.stride()[:3], *k.stride()[:3], *v.stride()[:3]),
        *(q.dtype == torch.bfloat16, output.data_ptr(), torch.get_num_threads()),
    ):
        raise MemoryError(f"no memory to attend to {k.size(2)} words")
    return output.transpose(1, 2).to(q.dtype)

"""What the modules may compute otherwise than by torch's own functions, where that is faster."""

from dataclasses import dataclass
from typing import Callable, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.modules.masks import additive_mask
from capsnmt.routing.numerics import compute_dtype


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], scale: float) -> Tensor:
    """Return the heads ``[B, H, k, d_v]`` of queries that attend to the slots of their sentence.

    Args:
        q: ``[B, H, k, d_k]``, of k hypotheses.
        k: ``[B, H, S, d_k]``.
        v: ``[B, H, S, d_v]``.
        mask: what is added to the scores, ``[B, k, S]``, or of all hypotheses, ``[B, S]``: 0 or so
            low that nothing is read.
        scale: multiplies the scores.
    """
    mask = additive_mask(None, mask, like=q)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def softmax_(scores: Tensor, words: Tensor) -> Tensor:
    """Put their softmax in place of scores ``[n, V]``, rounded to their precision.

    Return the negative log-probabilities ``[n, 1]`` of words ``[n, 1]``, in fp32 or better.
    """
    precise = compute_dtype(scores)
    log_probs = torch.empty_like(scores, dtype=precise)
    torch.log_softmax(scores, dim=-1, dtype=precise, out=log_probs)
    nll = -log_probs.gather(1, words)
    if scores.device.type == "cpu" and scores.dtype != precise:
        scores.copy_(log_probs.exp_())  # faster there than to round numbers as they are written
    else:
        torch.exp(log_probs, out=scores)
    return nll


@dataclass
class Shortcuts:
    """Functions that :mod:`capsnmt.fast` replaces; by themselves plain torch.

    Attributes:
        dropout: ``dropout(x, p)`` drops features of x with probability p > 0.
        products_are_faster: whether attention of queries to keys, both ``[B, H, L, d_h]``, trains
            faster by plain matrix products than by torch's fused call.
        attend_to_slots: :func:`attend`.
        softmax_: :func:`softmax_`.
        mix_over_depth: the mixture of values ``[.., d]`` that attention over depth makes for a
            query ``[d]``, or None.
    """

    dropout: Callable[[Tensor, float], Tensor]
    products_are_faster: Callable[[Tensor, Tensor], bool]
    attend_to_slots: Callable[[Tensor, Tensor, Tensor, Optional[Tensor], float], Tensor]
    softmax_: Callable[[Tensor, Tensor], Tensor]
    mix_over_depth: Callable[[Tensor, Sequence[Tensor]], Optional[Tensor]]


SHORTCUTS = Shortcuts(F.dropout, lambda q, k: False, attend, softmax_, lambda query, values: None)

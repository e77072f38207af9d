"""Shortcuts of the modules in training on a CPU: of dropout, and of attention."""

from typing import Any, Tuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.routing.tracing import is_compiled, is_followed, is_traced

VALUES = 2**16
"""Values of a random number that decides whether a feature is dropped."""


def dropout(x: Tensor, p: float) -> Tensor:
    """Drop features of x with probability p, on a CPU by random bits.

    torch draws 64 bits for each feature, one after another. Here 16 bits decide: a feature is
    dropped if they are a number in the lowest ``p`` of their range. For backward a byte of each
    feature is kept, not a floating-point number.

    **D**: ``p`` is rounded to a multiple of 1 / 65,536. What is kept is scaled by the probability
    of keeping it after rounding, so the expectation is exact.
    """
    dropped = round(p * VALUES)
    own = x.device.type == "cpu" and 0 < dropped < VALUES
    if own and not is_followed([x]):
        return cast(Tensor, Dropped.apply(x, dropped))
    return F.dropout(x, p)


class Dropped(torch.autograd.Function):
    """Set ``dropped`` of 65,536 features to zero, and scale the others.

    Which features are kept is a byte of 0 or 1, made from numbers: on a CPU, torch is slow
    with ``torch.bool`` (docs/speed.md).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        """Return the features that are kept, scaled, and zeros."""
        kept = random_numbers(x).ge_(dropped - VALUES // 2).to(torch.int8)
        ctx.save_for_backward(kept)
        ctx.scale = VALUES / (VALUES - dropped)
        return kept.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Tensor, None]:
        """Return the gradient of the same features, scaled in the same way."""
        (kept,) = ctx.saved_tensors
        kept, gradient = kept.to(gradients[0].dtype), gradients[0]
        if is_followed([gradient]):  # of a batch, which no single mask can take in
            return kept * gradient * ctx.scale, None
        return kept.mul_(gradient).mul_(ctx.scale), None


def random_numbers(x: Tensor) -> Tensor:
    """Return a random 16-bit integer for each element of ``x``, of all values equally likely.

    They have the strides of what torch computes of ``x``: those of a permuted one are permuted.
    """
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    lowest = torch.iinfo(torch.int64).min
    strides = torch.empty_like(x, device="meta").stride()
    return words.random_(lowest, None).view(torch.int16).as_strided(x.shape, strides)


PLAIN_UP_TO = 64
PLAIN_IN_BF16_UP_TO = 128
"""The longest sentence for which plain matrix products train faster than the fused call on a CPU.

docs/speed_measurements.md has the times.
"""


def products_are_faster(q: Tensor, k: Tensor) -> bool:
    """Return whether plain matrix products train faster than the fused call, ``PLAIN_UP_TO``.

    **D**: in a graph of ``torch.compile``, which serves every length, they are: most are short.
    """
    if q.device.type != "cpu":
        return False
    if is_traced():
        return is_compiled()
    limit = PLAIN_IN_BF16_UP_TO if q.dtype == torch.bfloat16 else PLAIN_UP_TO
    return max(q.size(-2), k.size(-2)) <= limit

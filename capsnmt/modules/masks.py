"""Masks of attention: what is added to the scores of keys that a query must not read."""

from typing import Optional

import torch
from torch import Tensor


def lowest(dtype: torch.dtype) -> float:
    """Return what is added to a masked score: half the range of the dtype, not infinity.

    The softmax of a row that is masked completely (for example at a padded target position) is then
    an average that nothing reads; a softmax over infinities would be NaN and spoil every gradient.
    Half of the range, so that fp16 cannot overflow.
    """
    return torch.finfo(dtype).min / 2


def additive_padding(padding: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask, true at padding, as what is added to scores of a dtype, or what already is."""
    if padding.is_floating_point():
        return padding.to(dtype)
    padding = padding.to(torch.bool)
    return torch.zeros_like(padding, dtype=dtype).masked_fill(padding, lowest(dtype))


def additive_mask(
    attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], like: Tensor
) -> Optional[Tensor]:
    """Merge the two masks into one additive mask, broadcastable to ``[B, H, L, K]``.

    Args:
        attn_mask: ``[L, K]``, added to the scores (``-inf`` where attention is not allowed), or
            true there, as in torch.
        key_padding_mask: ``[B, K]``, true at padding, or :func:`additive_padding` of it; or
            ``[B, L, K]``, what is added for each query.
        like: a tensor of the scores' dtype and device.
    """
    mask: Optional[Tensor] = None
    if attn_mask is not None:
        mask = additive_padding(attn_mask.to(like.device), like.dtype)
        mask = mask.clamp(min=lowest(like.dtype))[None, None]
    if key_padding_mask is None:
        return mask
    padding = additive_padding(key_padding_mask.to(like.device), like.dtype).unsqueeze(1)
    padding = padding.unsqueeze(1) if padding.dim() == 3 else padding
    return padding if mask is None else torch.where(padding < 0, padding, mask)

"""What an attention keeps between two steps of decoding, and its order in beam search."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

Cache = Dict[str, Tensor]
"""What an attention keeps between two steps of decoding; batch first. It starts empty."""

KeysValues = Tuple[Tensor, Tensor, Optional[Tensor]]
"""Keys and values ``[B, H, K, d_h]``, and their padding ``[B, K]``; None: none is."""


def kept(cache: Cache) -> KeysValues:
    """Return what was kept in earlier steps."""
    return cache["prev_key"], cache["prev_value"], cache.get("prev_key_padding_mask")


def keep(cache: Cache, keys: Tensor, values: Tensor, padding: Optional[Tensor]) -> KeysValues:
    """Keep keys and values in place of earlier ones, and return them."""
    cache["prev_key"], cache["prev_value"] = keys, values
    if padding is not None:
        cache["prev_key_padding_mask"] = padding
    return keys, values, padding


def append(cache: Cache, keys: Tensor, values: Tensor, padding: Optional[Tensor]) -> KeysValues:
    """Append keys and values to earlier ones, and return all of them."""
    if cache:
        old_keys, old_values, old_padding = kept(cache)
        if old_padding is not None or padding is not None:
            old_padding, padding = padding_of(old_keys, old_padding), padding_of(keys, padding)
            padding = torch.cat([old_padding, padding], dim=1)
        keys = torch.cat([old_keys, keys], dim=2)
        values = torch.cat([old_values, values], dim=2)
    return keep(cache, keys, values, padding)


def padding_of(keys: Tensor, padding: Optional[Tensor]) -> Tensor:
    """Return the padding of keys as a mask."""
    if padding is None:
        return keys.new_zeros(keys.size(0), keys.size(2), dtype=torch.bool)
    return padding.to(torch.bool)


def reorder(cache: Cache, new_order: Tensor) -> None:
    """Reorder a cache in beam search: by hypotheses, or by sentences where those share it.

    ``beam``, if there is one, has no numbers: it has as many columns as a sentence has hypotheses.
    Most steps move no sentence. A CPU then copies nothing; a GPU would have to wait to know.
    """
    beam = cache.get("beam")
    if beam is not None:
        new_order = sentence_order(new_order, beam.size(1))
        if stays(new_order, beam.size(0)):
            return
    for name, tensor in cache.items():
        cache[name] = tensor.index_select(0, new_order)


def sentence_order(new_order: Tensor, beam: int) -> Tensor:
    """Return the order of the sentences in a new order of their hypotheses, ``beam`` each.

    **D**: the hypotheses of a sentence stay together, as in every search of fairseq.
    """
    return torch.div(new_order[::beam], beam, rounding_mode="floor")


def stays(order: Tensor, rows: int) -> bool:
    """Return whether an order of so many rows is theirs; a GPU, which must wait, does not look."""
    return order.device.type == "cpu" and torch.equal(order, torch.arange(rows, device="cpu"))

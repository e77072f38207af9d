"""What an attention keeps between two steps of decoding, and its order in beam search."""

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import Tensor

Cache = Dict[str, Tensor]
"""What an attention keeps between two steps of decoding; batch first. It starts empty."""

KeysValues = Tuple[Tensor, Tensor, Optional[Tensor]]
"""Keys and values ``[B, H, K, d_h]``, and their padding ``[B, K]``; None: none is.

Of slots it is what is added to the scores, ``[B, k, K]`` for k hypotheses a sentence.
"""

FIRST_SLOTS = 64
OF_SENTENCES = {"prev_key", "prev_value", "prev_key_padding_mask"}


class SearchState(Dict[str, Any]):
    """The incremental state of a beam search in which no key is moved: a cache by its owner.

    The keys and values of all hypotheses of a sentence stay where they were written, in the *slots*
    of their sentence. A slot holds one word of one hypothesis.

    Attributes:
        mask: ``[B, k, S]``, 0 at the slots that a hypothesis sees, its newest word's included, and
            minus infinity at the others. The newest words have the last k slots.
    """

    mask: Tensor

    def places(self) -> Tensor:
        """Return the slots of each hypothesis in the order of its words, ``[B, k, words]``."""
        known: Optional[Tuple[Tensor, Tensor]] = getattr(self, "known", None)
        if known is None or known[0] is not self.mask:
            seen = self.mask.eq(0)
            found = seen.nonzero()[:, 2].view(*seen.shape[:2], -1)  # each has as many
            known = self.known = self.mask, found
        return known[1]

    def move(self, free: Sequence[int], last: Sequence[int], count: int) -> None:
        """Move the last sentences into the places of finished ones, and keep so many."""
        for cache in self.values():
            for name in OF_SENTENCES.intersection(cache if isinstance(cache, Slots) else ()):
                if free:
                    cache[name][free] = cache[name][last]
                cache[name] = cache[name][:count]

    def reorder(self, new_order: Tensor) -> None:
        """Reorder by hypotheses what is not of a sentence."""
        for cache in self.values():
            if isinstance(cache, Slots):
                for name in cache.keys() - OF_SENTENCES:
                    cache[name] = cache[name].index_select(0, new_order)


class Slots(Dict[str, Tensor]):
    """The cache of one attention in a :class:`SearchState`: keys and values ``[B, H, S, d_h]``.

    Those of a head lie side by side, so that a matrix product copies none. What else an attention
    keeps is of hypotheses, ``[B k, ..]``.
    """

    def __init__(self, search: SearchState) -> None:
        super().__init__()
        self.search = search

    def append(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Write the keys and values of the newest words, ``[B k, H, 1, d_h]``; return all."""
        mask = self.search.mask
        sentences, rows, slots = mask.shape
        both = []
        for name, new in (("prev_key", keys), ("prev_value", values)):
            new = new.squeeze(2).unflatten(0, (sentences, rows)).transpose(1, 2)
            written = self.get(name)
            if written is None or written.size(2) < slots:
                room = max(FIRST_SLOTS, 2 * slots)
                self[name] = new.new_empty(*new.shape[:2], room, new.size(-1))
                if written is not None:
                    self[name][:, :, : written.size(2)] = written
            written = self[name][:, :, :slots]
            written[:, :, slots - rows :] = new
            both.append(written)
        return both[0], both[1], mask


def kept(cache: Cache) -> KeysValues:
    """Return what was kept in earlier steps."""
    return cache["prev_key"], cache["prev_value"], cache.get("prev_key_padding_mask")


def keep(cache: Cache, keys: Tensor, values: Tensor, padding: Optional[Tensor]) -> KeysValues:
    """Keep keys and values in place of earlier ones, and return them."""
    if isinstance(cache, Slots):
        keys, values = keys.contiguous(), values.contiguous()
    cache["prev_key"], cache["prev_value"] = keys, values
    if padding is not None:
        cache["prev_key_padding_mask"] = padding
    return kept(cache)


def append(cache: Cache, keys: Tensor, values: Tensor, padding: Optional[Tensor]) -> KeysValues:
    """Append keys and values to earlier ones, and return all of them."""
    if isinstance(cache, Slots):
        return cache.append(keys, values)
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

"""Training, validation and test sets without leakage, stable when the corpus grows."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

PER_MILLE = 1000


def sentence_key(sentence: str) -> str:
    """Return a key that ignores case, space and punctuation."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return "".join(filter(str.isalnum, folded)) or folded.strip()


def unique_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pairs whose source and target are both new, by `sentence_key`.

    The remaining pairs are one-to-one, so that a split by source is also a split by target. The
    first pair is kept: pairs added at the end never remove an earlier one.
    """
    sources: set[str] = set()
    targets: set[str] = set()
    for source, target in pairs:
        keys = sentence_key(source), sentence_key(target)
        if keys[0] not in sources and keys[1] not in targets:
            sources.add(keys[0])
            targets.add(keys[1])
            yield source, target


def split_name(sentence: str, held_out: Mapping[str, int]) -> str:
    """Return the split of a sentence, which depends only on its hash.

    Args:
        sentence: the English side, whichever direction is translated.
        held_out: split -> share in per mille; the rest is the training set.
    """
    digest = hashlib.sha256(sentence_key(sentence).encode("utf-8")).digest()
    place = int.from_bytes(digest[:8], "big") % PER_MILLE
    for name, share in held_out.items():
        if place < share:
            return name
        place -= share
    return "train"

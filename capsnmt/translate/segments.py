"""Lines that are longer than the positions of a model."""

from __future__ import annotations

from typing import List, Sequence

# a subword of subword-nmt that does not end its word; one of sentencepiece that starts a word
CONTINUED, STARTS = "@@", "\u2581"
SENTENCE_ENDS = frozenset(".!?;。！？；…")


def split_subwords(subwords: Sequence[str], limit: int, sentencepiece: bool) -> List[List[str]]:
    """Split the subwords of a line into parts that fit into a model.

    **D**: a part ends at the last end of a sentence in its second half, otherwise at the last end
    of a word, and only inside a word that is longer than a part.

    >>> split_subwords("a b . c d@@ e f".split(), 4, sentencepiece=False)
    [['a', 'b', '.'], ['c', 'd@@', 'e', 'f']]

    Args:
        subwords: the line.
        limit: the most subwords of a part.
        sentencepiece: whether the subwords are those of sentencepiece, not of subword-nmt.
    """
    parts: List[List[str]] = []
    start = 0
    while len(subwords) - start > limit:
        ends = range(start + limit, start, -1)
        words = [end for end in ends if _starts_word(subwords, end, sentencepiece)]
        sentences = [
            end
            for end in words
            if subwords[end - 1].lstrip(STARTS) in SENTENCE_ENDS and end - start > limit // 2
        ]
        end = (sentences or words or ends)[0]
        parts.append(list(subwords[start:end]))
        start = end
    return [*parts, list(subwords[start:])]


def cut_words(line: str, longest: int) -> str:
    """Cut the words of a line into pieces of at most ``longest`` characters.

    >>> cut_words("a bcdefg", 4)
    'a bcde fg'
    """
    return " ".join(
        word[start : start + longest]
        for word in line.split()
        for start in range(0, len(word), longest)
    )


def _starts_word(subwords: Sequence[str], place: int, sentencepiece: bool) -> bool:
    """Return whether the subword at a place is the first of its word."""
    if sentencepiece:
        return subwords[place].startswith(STARTS)
    return not subwords[place - 1].endswith(CONTINUED)

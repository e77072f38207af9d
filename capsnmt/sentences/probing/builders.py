"""The three probing tasks that need no parser, built from any text (Conneau et al. 2018).

Each function takes tokenised sentences and yields (label, tokens) for those that qualify.
:func:`balance` balances the classes and splits the data, in the same way for all.
"""

from __future__ import annotations

import bisect
import hashlib
import random
from collections import Counter
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from capsnmt.cli import ConfigurationError

Labelled = Tuple[str, List[str]]

# SentEval's classes of lengths: 5-8, 9-12, 13-16, 17-20, 21-25, 26-28 tokens
LENGTH_BOUNDS = (5, 9, 13, 17, 21, 26, 29)
# the words of SentEval's WC: ranks 2,000 to 2,999 by frequency
FIRST_RANK, NUM_WORDS = 2000, 1000
HELD_OUT = 10  # one in ten examples is for validation, and one for testing
FEWEST = HELD_OUT  # examples per class, so that every split has every class


def sentence_length(
    sentences: Iterable[List[str]], bounds: Sequence[int] = LENGTH_BOUNDS
) -> Iterator[Labelled]:
    """Yield examples of SentLen: classify the number of tokens.

    Class c has ``bounds[c]`` to ``bounds[c + 1] - 1`` tokens; other sentences are left out.

    >>> list(sentence_length([["a"] * 9], (5, 9, 13)))[0][0]
    '1'
    """
    for tokens in sentences:
        number = bisect.bisect_right(bounds, len(tokens)) - 1
        if 0 <= number < len(bounds) - 1:
            yield str(number), tokens


def word_content(
    sentences: Sequence[List[str]], first_rank: int = FIRST_RANK, num_words: int = NUM_WORDS
) -> Iterator[Labelled]:
    """Yield examples of WC: classify which word of medium frequency a sentence contains.

    Only sentences with exactly one such word qualify.

    **D**: words of equal frequency are ranked alphabetically. A sentence with the same word twice
    does not qualify. Words are tokens with a letter, as in SentEval; a comma is not content.

    Raises:
        ConfigurationError: the text has too few words.
    """
    counts = Counter(token for tokens in sentences for token in tokens)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    ranked = [word for word in ranked if any(map(str.isalpha, word))]
    words = set(ranked[first_rank : first_rank + num_words])
    if len(words) < num_words:
        raise ConfigurationError(
            f"--first-rank {first_rank} --words {num_words}: the text has {len(ranked)} different "
            f"words: give smaller numbers (SentEval: {FIRST_RANK} and {NUM_WORDS})"
        )
    for tokens in sentences:
        found = [token for token in tokens if token in words]
        if len(found) == 1:
            yield found[0], tokens


def bigram_shift(sentences: Iterable[List[str]], seed: int = 1) -> Iterator[Labelled]:
    """Yield examples of BShift: classify whether two adjacent tokens are inverted (I) or not (O).

    A random half of the sentences have one pair inverted; each sentence occurs in one form only.

    **D**: the two tokens differ, so that the sentence changes; all such pairs are equally likely.
    """
    for tokens in sentences:
        draw = random.Random(f"{seed} {' '.join(tokens)}")
        pairs = [i for i in range(len(tokens) - 1) if tokens[i] != tokens[i + 1]]
        if not pairs:
            continue
        if draw.random() < 0.5:
            yield "O", tokens
        else:
            i = draw.choice(pairs)
            yield "I", [*tokens[:i], tokens[i + 1], tokens[i], *tokens[i + 2 :]]


def balance(
    examples: Iterable[Labelled], per_class: int = 0, seed: int = 1
) -> Dict[str, List[Tuple[str, str]]]:
    """Split examples into train, valid and test with equally many examples per class.

    A hash of the sentence decides which examples are used and in which split, so the same text
    gives the same files. The splits are disjoint if the sentences are distinct.

    Args:
        examples: (label, tokens).
        per_class: examples per class; 0 means as many as the rarest class has.
        seed: another seed gives another selection.

    Returns:
        (label, sentence) by split, in random order: 8 of 10 for training, 1 each for validation
        and testing.

    Raises:
        ConfigurationError: a class has too few examples, or there is only one class.
    """

    def by_chance(example: Tuple[str, str]) -> bytes:
        return hashlib.sha256(f"{seed}\t{example[1]}".encode()).digest()

    classes: Dict[str, List[Tuple[str, str]]] = {}
    for label, tokens in examples:
        classes.setdefault(label, []).append((label, " ".join(tokens)))
    if len(classes) < 2:
        raise ConfigurationError(
            f"the text has examples of {len(classes)} classes, a probing task needs two or more: "
            f"give more text"
        )
    rarest = min(classes, key=lambda label: len(classes[label]))
    most = len(classes[rarest])
    if most < max(FEWEST, per_class):
        raise ConfigurationError(
            f"class {rarest!r} has {most} sentences but needs {max(FEWEST, per_class)}: give more "
            f"text, a smaller --per-class, other --length-bounds or a lower --first-rank"
        )
    size = per_class or most
    held_out = size // HELD_OUT
    splits: Dict[str, List[Tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for members in classes.values():
        members = sorted(members, key=by_chance)[:size]
        splits["test"] += members[:held_out]
        splits["valid"] += members[held_out : 2 * held_out]
        splits["train"] += members[2 * held_out :]
    return {name: sorted(split, key=by_chance) for name, split in splits.items()}

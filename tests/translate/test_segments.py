"""Long lines are split where it hurts least, and nothing is lost."""

from __future__ import annotations

import random
from typing import List

import pytest

from capsnmt.translate.translator import cut_words, split_subwords


@pytest.mark.parametrize("sentencepiece", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_the_parts_are_the_line_and_fit(seed: int, sentencepiece: bool) -> None:
    chance = random.Random(seed)
    kinds = ["▁a", "b", "▁."] if sentencepiece else ["a@@", "b", "."]
    subwords = chance.choices(kinds, weights=[4, 4, 1], k=chance.randrange(1, 60))
    limit = chance.randrange(1, 12)
    parts = split_subwords(subwords, limit, sentencepiece)
    assert [word for part in parts for word in part] == subwords
    assert all(1 <= len(part) <= limit for part in parts)


@pytest.mark.parametrize(
    ("line", "sentencepiece", "parts"),
    [
        ("a b c", False, ["a b c"]),
        ("a b c d e f", False, ["a b c d", "e f"]),
        ("a b c d@@ e f", False, ["a b c", "d@@ e f"]),  # at a word
        ("a b . d e f", False, ["a b .", "d e f"]),  # at a sentence in the second half
        ("a . c d e f", False, ["a . c d", "e f"]),  # not earlier
        ("a@@ b@@ c@@ d@@ e@@ f", False, ["a@@ b@@ c@@ d@@", "e@@ f"]),  # in a long word
        ("▁a ▁b c ▁d e ▁f", True, ["▁a ▁b c", "▁d e ▁f"]),
        ("▁a b 。 ▁d ▁e", True, ["▁a b 。", "▁d ▁e"]),
    ],
)
def test_where_a_line_is_split(line: str, sentencepiece: bool, parts: List[str]) -> None:
    split = split_subwords(line.split(), 4, sentencepiece)
    assert [" ".join(part) for part in split] == parts


def test_long_words_are_cut() -> None:
    assert cut_words("x" * 25 + " y", 10) == " ".join(["x" * 10, "x" * 10, "x" * 5, "y"])

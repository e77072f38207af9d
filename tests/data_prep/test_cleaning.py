from __future__ import annotations

from collections import Counter

import pytest

from data_prep.cleaning import Cleaning


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        ("a b", "c d", None),
        ("a b c d", "e f g h", None),
        ("", "c", "empty"),
        ("a", " ", "empty"),
        ("a b c d e", "f g h i", "length"),
        ("a", "b c", None),
        ("a", "b c d", "ratio"),
        ("b c d", "a", "ratio"),
    ],
)
def test_limits_are_inclusive_and_hold_on_both_sides(source, target, fault):
    assert Cleaning(max_length=4, max_ratio=2.0).fault(source, target) == fault


def test_dropped_pairs_are_counted_by_reason():
    counts: Counter[str] = Counter()
    pairs = [("a", "b"), ("", "b"), ("a", "b " * 10), ("c", "d")]
    assert list(Cleaning().kept(pairs, counts)) == [("a", "b"), ("c", "d")]
    assert counts == {"kept": 2, "empty": 1, "ratio": 1}

from __future__ import annotations

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora import blocks
from capsnmt.corpora.blocks import cut, map_blocks, write_parts
from capsnmt.corpora.cleaning import Cleaning, make_cleaner, make_digester, make_limiter
from capsnmt.corpora.duplicates import mark_repeated
from capsnmt.corpora.parallel import map_items
from capsnmt.corpora.segmentation import LONGEST_WORD, make_segmenter


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
        ("a" * LONGEST_WORD, "b", None),
        ("a", "b " + "c" * (LONGEST_WORD + 1), "word"),
    ],
)
def test_limits_are_inclusive_and_hold_on_both_sides(source, target, fault):
    assert Cleaning(max_length=4, max_ratio=2.0).fault(source, target) == fault


def test_a_word_that_bpe_would_take_hours_for_is_refused(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b</w>\n", encoding="utf-8")
    segment = make_segmenter("bpe", str(tmp_path / "codes"))
    assert segment("ab c") == "ab c"
    with pytest.raises(ConfigurationError, match="a word of more than 10,000 characters"):
        segment("ab " + "c" * (LONGEST_WORD + 1))


@pytest.fixture
def corpus(tmp_path):
    """Two aligned files of `pairs`, cut into blocks of two lines."""

    def corpus(pairs):
        for side, lines in zip("ab", zip(*pairs)):
            (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return cut(tmp_path / "a", tmp_path / "b")

    return corpus


def _written(parts, folder):
    paths = [folder / "kept.a", folder / "kept.b"]
    counts = write_parts(paths, parts, "clean").counts
    return list(zip(*(path.read_text(encoding="utf-8").splitlines() for path in paths))), counts


@pytest.mark.parametrize("workers", [1, 2])
def test_dropped_pairs_are_counted_by_reason(corpus, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(blocks, "LINES", 2)
    pairs = [("a", "b"), ("", "b"), ("a", "b " * 10), ("c", "d"), ("a", "b")]
    parts = map_blocks(make_cleaner, (Cleaning(), None), corpus(pairs), workers)
    kept, counts = _written(parts, tmp_path)
    assert kept == [("a", "b"), ("c", "d"), ("a", "b")]
    assert counts == {"kept": 3, "empty": 1, "ratio": 1}


@pytest.mark.parametrize("workers", [1, 2])
def test_of_repeated_pairs_the_first_good_one_stays(corpus, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(blocks, "LINES", 2)
    pairs = [("x", str(number % 7)) for number in range(40)]
    pairs[3] = ("", "3")
    limits = Cleaning()
    cuts = corpus(pairs)
    entries = map_items(make_digester, (limits,), cuts, workers)
    repeated = mark_repeated(entries, len(pairs), tmp_path / "scratch")
    kept, counts = _written(map_blocks(make_cleaner, (limits, repeated), cuts, workers), tmp_path)
    assert kept == [("x", number) for number in "0124563"]
    assert counts == {"kept": 7, "empty": 1, "duplicate": 32}


def test_too_many_subwords_are_dropped(corpus, tmp_path):
    parts = map(make_limiter(Cleaning(max_subwords=2)), corpus([("a b", "c"), ("a", "b c d")]))
    kept, counts = _written(parts, tmp_path)
    assert kept == [("a b", "c")]
    assert counts == {"kept": 1, "subwords": 1}

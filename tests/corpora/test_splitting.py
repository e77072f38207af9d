from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from capsnmt.corpora.splitting import sentence_key, split_name, unique_pairs

HELD_OUT = {"valid": 200, "test": 300}
# Few words in many variants, so that sentences often collide.
WORDS = st.sampled_from(
    ["save", "Save", "SAVE.", "ﬁle", "file", "Straße", "strasse", "a", " a!", "?"]
)
SENTENCES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), max_size=40)


def _splits(pairs):
    return [(pair, split_name(pair[0], HELD_OUT)) for pair in unique_pairs(pairs)]


@given(PAIRS)
def test_no_source_and_no_target_is_in_two_splits(pairs):
    for side in (0, 1):
        places: dict[str, set[str]] = {}
        for pair, split in _splits(pairs):
            places.setdefault(sentence_key(pair[side]), set()).add(split)
        assert all(len(splits) == 1 for splits in places.values())


@given(PAIRS, PAIRS)
def test_more_pairs_at_the_end_move_and_remove_nothing(pairs, more):
    before = _splits(pairs)
    assert _splits(pairs + more)[: len(before)] == before


def test_sentences_that_differ_in_case_space_and_punctuation_have_one_key():
    same = ["Save the file.", "save  the ﬁle", "SAVE THE FILE!", " Save, the file…"]
    assert {sentence_key(sentence) for sentence in same} == {"savethefile"}
    assert sentence_key("Save a file") != "savethefile"
    assert sentence_key("?") != sentence_key("!")


def test_shares_are_those_asked_for():
    names = [split_name(f"sentence {number}", HELD_OUT) for number in range(4000)]
    shares = {name: names.count(name) / len(names) for name in ("train", "valid", "test")}
    expected = {"train": 0.5, "valid": 0.2, "test": 0.3}
    # Four standard deviations of a binomial share at n = 4000 are at most 0.032.
    assert all(abs(shares[name] - expected[name]) < 0.032 for name in expected)


def test_the_split_of_a_sentence_never_changes():
    known = {"Enter a valid email address.": "test", "View site": "train"}
    assert {sentence: split_name(sentence, HELD_OUT) for sentence in known} == known

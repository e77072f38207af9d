"""The built tasks have SentEval's definitions, balanced classes, and splits without overlap."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import List

import pytest
from capsnmt.sentences.probing import build
from capsnmt.sentences.probing.builders import balance, bigram_shift, sentence_length, word_content
from capsnmt.sentences.probing.senteval import read_task
from capsnmt.sentences.probing.tasks import TASKS

from capsnmt.cli import ConfigurationError

WORDS = [f"w{number}" for number in range(40)]


def corpus(count: int = 600) -> List[List[str]]:
    """Sentences of 4 to 12 words, the word w0 the most frequent."""
    draw = random.Random(1)
    weights = [1 / (1 + rank) for rank in range(len(WORDS))]
    return [draw.choices(WORDS, weights, k=draw.randint(4, 12)) for _ in range(count)]


def test_sentence_length_is_the_class_of_the_number_of_tokens() -> None:
    labelled = list(sentence_length([["x"] * n for n in range(1, 32)]))
    classes = {len(tokens): label for label, tokens in labelled}
    assert set(classes) == set(range(5, 29))
    starts = {n: classes[n] for n in (5, 8, 9, 12, 13, 16, 17, 20, 21, 25, 26, 28)}
    assert "".join(starts.values()) == "001122334455"


def test_word_content_is_the_one_word_of_the_middle_that_the_sentence_has() -> None:
    sentences = corpus()
    ranked = [word for word, _ in Counter(w for s in sentences for w in s).most_common()]
    labelled = list(word_content(sentences, 10, 5))
    middle = {label for label, _ in labelled}
    counts = Counter(w for s in sentences for w in s)
    assert len(middle) == 5
    assert max(counts[w] for w in middle) <= counts[ranked[9]]
    assert min(counts[w] for w in middle) >= counts[ranked[15]]
    for label, tokens in labelled:
        assert [token for token in tokens if token in middle] == [label]


def test_bigram_shift_inverts_one_pair_of_neighbours_or_nothing() -> None:
    sentences = [s for s in corpus() if len(set(s)) > 1]
    shifted = 0
    for original, (label, tokens) in zip(sentences, bigram_shift(sentences)):
        changed = [i for i, (a, b) in enumerate(zip(original, tokens)) if a != b]
        if label == "O":
            assert not changed
        else:
            first, second = changed
            assert second == first + 1
            assert (tokens[first], tokens[second]) == (original[second], original[first])
            shifted += 1
    assert 0.4 < shifted / len(sentences) < 0.6


def test_every_split_has_as_many_of_each_class_and_no_sentence_twice() -> None:
    splits = balance(bigram_shift([s for s in corpus() if len(set(s)) > 1]), 100)
    for split, size in {"train": 80, "valid": 10, "test": 10}.items():
        assert Counter(label for label, _ in splits[split]) == {"O": size, "I": size}
    unique = {tuple(s): s for s in corpus()}.values()
    sentences = [text for s in balance(bigram_shift(unique)).values() for _, text in s]
    assert len(sentences) == len(set(sentences))
    labels = [label for label, _ in splits["train"]]
    assert labels != sorted(labels)


def test_too_little_text_is_reported_with_the_class_and_the_fix() -> None:
    with pytest.raises(ConfigurationError, match="class '1' has 2 sentences but needs 10"):
        balance([("0", ["a"])] * 20 + [("1", ["b"])] * 2)
    with pytest.raises(ConfigurationError, match="has examples of 1 classes"):
        balance([("0", ["a"])] * 20)
    with pytest.raises(ConfigurationError, match="--first-rank 2000 --words 1000: the text has 40"):
        list(word_content(corpus()))


def test_the_command_writes_senteval_files_that_the_task_reads(tmp_path: Path) -> None:
    pytest.importorskip("jieba", reason="data_prep is not installed here")
    text = tmp_path / "text"
    text.write_text("\n".join(" ".join(s) for s in corpus()) + "\n", encoding="utf-8")
    options = ["--length-bounds", "4,7,10,13", "--first-rank", "10", "--words", "3"]
    build.main([str(text), "--output", str(tmp_path / "data"), *options])
    for name in build.BUILT:
        splits = read_task(tmp_path / "data", name)
        sentences = [e.sentences[0] for examples in splits.values() for e in examples]
        assert len(set(sentences)) == len(sentences) >= 40
        counts = Counter(example.label for example in splits["train"])
        assert len(counts) > 1
        assert len(set(counts.values())) == 1
    first = (tmp_path / "data" / TASKS["WC"].file).read_text("utf-8")
    build.main([str(text), "--output", str(tmp_path / "data"), *options])
    assert (tmp_path / "data" / TASKS["WC"].file).read_text("utf-8") == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "Tense"], "'Tense': choose from SentLen, WC, BShift"),
        (["--length-bounds", "9,5,3"], "'9,5,3' is not a rising list"),
        (["--words", "0"], "'0' is not a whole number of at least 1"),
    ],
)
def test_a_bad_flag_is_one_line(arguments: List[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        build.main(["text", "--output", str(tmp_path / "out"), *arguments])
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()

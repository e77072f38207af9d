from __future__ import annotations

import io
from collections import Counter, UserList
from itertools import islice

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.corpora import blocks, segmentation
from capsnmt.corpora.parallel import CHUNKS_A_WORKER, map_items
from capsnmt.corpora.segmentation import count_words, learn_codes, learn_pieces


def _double():
    return lambda number: 2 * number


def test_items_come_back_in_order():
    assert list(map_items(_double, (), range(500), workers=2)) == list(range(0, 1000, 2))


def test_only_a_few_items_are_started_before_they_are_consumed():
    begun = []

    class Numbers(UserList):
        def __iter__(self):
            for number in self.data:
                begun.append(number)
                yield number

    results = map_items(_double, (), Numbers(range(1000)), workers=2)
    assert list(islice(results, 100)) == list(range(0, 200, 2))
    results.close()
    assert len(begun) <= 100 + 2 * CHUNKS_A_WORKER + 1


def _refuse():
    def refuse(number):
        if number == 3:
            raise ConfigurationError("line 4: not UTF-8")
        return number

    return refuse


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_passed_on_unchanged(workers):
    with pytest.raises(ConfigurationError, match="line 4: not UTF-8"):
        list(map_items(_refuse, (), range(9), workers))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    words = [f"wörd{number % 37} 词{number % 5}语 x" for number in range(400)]
    path.write_text("".join(f"{line}\n" for line in words), encoding="utf-8")
    return path


@pytest.mark.parametrize("workers", [1, 2])
def test_words_of_all_texts_are_counted_once(text, monkeypatch, workers):
    monkeypatch.setattr(blocks, "LINES", 7)
    expected = Counter(2 * text.read_text(encoding="utf-8").split())
    assert count_words([text, text], workers) == expected


def test_codes_are_those_of_subword_nmt_on_the_complete_text_with_any_number_of_workers(
    text, tmp_path, monkeypatch
):
    from subword_nmt.learn_bpe import learn_bpe

    monkeypatch.setattr(blocks, "LINES", 100)
    other = tmp_path / "other"
    other.write_text("other words, otherwise worded\n" * 3, encoding="utf-8")
    models = {tmp_path / "codes": [text, text], tmp_path / "codes.other": [text, other]}
    expected = []
    for texts in models.values():
        lines = [line for path in texts for line in path.open(encoding="utf-8")]
        learn_bpe(lines, stream := io.StringIO(), 50)
        expected.append(stream.getvalue())
    for workers in (1, 2):
        learn_codes(models, 50, workers)
        assert [path.read_text(encoding="utf-8") for path in models] == expected


def test_pieces_do_not_depend_on_the_number_of_threads(text, tmp_path):
    models = []
    for workers in (1, 2):
        learn_pieces({tmp_path / "model": [text]}, 50, workers)
        models.append(segmentation.make_segmenter("sentencepiece", str(tmp_path / "model")))
    line = text.read_text(encoding="utf-8").splitlines()[0]
    assert models[0](line) == models[1](line)
    assert models[0](line).replace(" ", "").replace("▁", " ").strip() == line


def test_too_small_a_text_is_one_line(tmp_path):
    (tmp_path / "text").write_text("a b c\n")
    with pytest.raises(ConfigurationError, match="no BPE can be learned") as error:
        learn_codes({tmp_path / "codes": [tmp_path / "text"]}, 10, 1)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigurationError, match="no sentencepiece model of 9000 pieces") as error:
        learn_pieces({tmp_path / "model": [tmp_path / "text"]}, 9000, 1)
    assert "\n" not in str(error.value)

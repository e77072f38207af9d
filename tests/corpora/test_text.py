from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.text import TOKENISERS, make_tokeniser


@pytest.mark.parametrize(
    ("name", "language", "line", "tokens"),
    [
        ("moses", "de", "Der „Hund“ (z.B. Max) läuft…", 'Der " Hund " ( z.B. Max ) läuft ...'),
        ("moses", "en", "It's R&D, isn't it?", "It 's R & D , isn 't it ?"),
        ("moses", "es", "¿Qué tal?", "¿ Qué tal ?"),
        ("characters", "zh", "打开 Git 仓库。", "打 开 Git 仓 库 。"),
        ("jieba", "zh", "我们开始翻译", "我们 开始 翻译"),
        ("none", "vi", " Khoa học   đằng sau ", "Khoa học đằng sau"),
    ],
)
def test_tokeniser_gives_the_expected_tokens(name, language, line, tokens):
    assert make_tokeniser(name, language)(line) == tokens


def test_both_unicode_compositions_give_the_same_tokens():
    tokenise = make_tokeniser("moses", "vi")
    assert tokenise("Viê\u0323t Nam") == tokenise("Việt Nam")


@settings(max_examples=30, deadline=None)
@given(line=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n")))
@pytest.mark.parametrize("name", [name for name in TOKENISERS if name != "jieba"])
def test_a_line_stays_one_line_of_single_spaced_tokens(name, line):
    tokens = make_tokeniser(name, "en")(line)
    assert tokens == " ".join(tokens.split())
    assert len(tokens.splitlines()) <= 1


def test_unknown_tokeniser_lists_the_known():
    with pytest.raises(
        ConfigurationError, match=r"spacy' is unknown: use moses, characters, jieba"
    ):
        make_tokeniser("spacy", "en")

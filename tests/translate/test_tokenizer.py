"""The tokeniser of data preparation in fairseq's registry."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.data import encoders

import capsnmt.plugin  # noqa: F401  registers it
from capsnmt.cli import ConfigurationError


@pytest.mark.parametrize(
    ("languages", "tokenisers", "text", "tokens", "translation", "detokenised"),
    [
        (
            ("en", "de"),
            ("moses", "moses"),
            "\u201cIt\u2019s e\u0301\u201d, well-known &\u2028so.",
            '" It \'s é , " well-known & so .',
            "Das ist , wie gesagt , gut .",
            "Das ist, wie gesagt, gut.",
        ),
        (("zh", "en"), ("characters", "moses"), "他有3本书。", "他 有 3 本 书 。", "A .", "A."),
        (("zh", "en"), ("jieba", "moses"), "我喜欢苹果", "我 喜欢 苹果", "A .", "A."),
        (
            ("en", "zh"),
            ("moses", "characters"),
            "It's.",
            "It 's .",
            "他 有 3 本 书 ， Tom 。",
            "他有3本书，Tom。",
        ),
        (("en", "vi"), ("none", "none"), " a , b ", "a , b", "c , d .", "c , d ."),
    ],
)
def test_text_becomes_tokens_and_tokens_text(
    languages: tuple,
    tokenisers: tuple,
    text: str,
    tokens: str,
    translation: str,
    detokenised: str,
) -> None:
    (source, target), (of_source, of_target) = languages, tokenisers
    tokenizer = encoders.build_tokenizer(
        Namespace(
            tokenizer="capsnmt",
            source_lang=source,
            target_lang=target,
            source_tokeniser=of_source,
            target_tokeniser=of_target,
        )
    )
    assert tokenizer.encode(text) == tokens
    assert tokenizer.decode(translation) == detokenised


def test_an_unknown_tokeniser_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'spaces' is unknown: use moses, characters"):
        encoders.build_tokenizer(Namespace(tokenizer="capsnmt", source_tokeniser="spaces"))


def test_missing_languages_are_refused() -> None:
    missing = Namespace(tokenizer="capsnmt", source_lang=None, target_lang="de")
    with pytest.raises(ConfigurationError, match="give --source-lang and --target-lang"):
        encoders.build_tokenizer(missing)

"""Raw text to subwords and back: the tokeniser of data preparation, and lines that are split."""

from argparse import Namespace
from typing import Any, List, Optional

import pytest
from fairseq.data import encoders

import capsnmt.plugin  # noqa: F401  registers the tokeniser
from capsnmt.cli import ConfigurationError
from capsnmt.translate.translator import split_subwords


def build(*settings: Optional[str]) -> Any:
    """What ``--tokenizer capsnmt`` builds of both languages and both tokenisers."""
    names = ("source_lang", "target_lang", "source_tokeniser", "target_tokeniser")
    return encoders.build_tokenizer(Namespace(tokenizer="capsnmt", **dict(zip(names, settings))))


def test_each_side_has_its_own_tokeniser_and_a_bad_setting_is_one_line() -> None:
    """That they are those of data preparation and of scoring: test_translate.py."""
    tokenizer = build("en", "vi", "moses", "none")
    assert tokenizer.encode("It's.") == "It 's ."
    assert tokenizer.decode("con mèo .") == "con mèo ."  # a corpus that is published tokenised
    with pytest.raises(ConfigurationError, match="'spaces'; choose from moses, "):
        build("en", "de", "spaces", "moses")
    with pytest.raises(ConfigurationError, match="give --source-lang and --target-lang"):
        build(None, "de", "moses", "moses")


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
        ("▁我 看 。 你 听", True, ["▁我 看 。", "你 听"]),  # text without spaces
        ("我@@ 看@@ 。@@ 你@@ 听", False, ["我@@ 看@@ 。@@", "你@@ 听"]),
        ("▁a ▁b 3 . 5 ▁d", True, ["▁a", "▁b 3 . 5", "▁d"]),  # no end inside a word
    ],
)
def test_where_a_line_is_split(line: str, sentencepiece: bool, parts: List[str]) -> None:
    split = split_subwords(line.split(), 4, sentencepiece)
    assert [" ".join(part) for part in split] == parts

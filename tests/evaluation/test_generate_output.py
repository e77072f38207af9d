"""Reading fairseq-generate's output: order, further hypotheses, noise, and broken files."""

from __future__ import annotations

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.generate_output import parse_generate_output

# sentences as fairseq prints them: no line end and no tab inside, everything else may be
SENTENCE = st.text(st.characters(blacklist_characters="\n\t", blacklist_categories=["Cs"]))

LOG = [
    "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [en] dictionary: 9,999 types",
    "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [en] dictionary: 200 types",
    "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [de] dictionary: 208 types",
]
TRAILER = [
    "2026-01-01 00:00:09 | INFO | fairseq_cli.generate | Translated 3 sentences (9 tokens)",
    "Generate test with beam=5: BLEU4 = 1.00, 20.0/3.0/1.0/0.5 (BP=1.000, ratio=1.2)",
]


def record(number: int, *hypotheses: str, target: str = "t") -> List[str]:
    lines = [f"S-{number}\tsource", f"T-{number}\t{target}"]
    for text in hypotheses:
        lines += [f"H-{number}\t-0.5\t{text}", f"D-{number}\t-0.5\t{text}", f"P-{number}\t-0.1"]
    return lines


def read(lines: List[str]) -> List[str]:
    return parse_generate_output(lines, "gen.out").hypotheses


@given(st.permutations(range(6)), st.lists(SENTENCE, min_size=6, max_size=6), st.integers(1, 3))
def test_any_decoding_order_comes_back_as_the_test_set(
    order: List[int], texts: List[str], nbest: int
) -> None:
    lines = list(LOG)
    for number in order:
        further = [f"worse {i}" for i in range(nbest - 1)]
        lines += record(number, texts[number], *further, target=texts[number].upper())
    output = parse_generate_output(lines + TRAILER, "gen.out")
    assert output.hypotheses == texts
    assert output.decoded == texts
    assert output.references == [text.upper() for text in texts]
    assert output.sources == ["source"] * len(texts)
    assert output.target_lang == "de"


def test_empty_hypotheses_are_kept_with_and_without_their_tab() -> None:
    assert read(["H-1\t-0.5\t", "H-0\t-0.5\ta", "H-2\t-0.5"]) == ["a", "", ""]


def test_hypotheses_alone_are_enough() -> None:
    output = parse_generate_output(["H-1\t-1.0\tb", "H-0\t-1.0\ta"], "gen.out")
    assert output == type(output)(["a", "b"], None, None, None, None)


def test_sorted_output_is_read_too() -> None:
    assert read(sorted([*record(0, "a"), *record(1, "b"), *record(2, "c")])) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "has no H- lines"),
        (["a plain translation", "another"], "has no H- lines"),
        ([*LOG, "S-0\ta", "T-0\tb"], "has no H- lines"),
        ([*record(0, "a"), *record(1, "b"), *record(0, "a")], "sentence 0 is repeated"),
        ([*record(0, "a"), *record(0, "a")], "sentence 0 is repeated"),
        (["H-0\t-1\ta", "H-1\t-1\tb", "H-0\t-1\ta"], "sentence 0 is repeated"),
        ([*record(0, "a"), *record(3, "b")], r"2 of the sentences 0\.\.3 have no H- line \(1, 2\)"),
        ([*record(0, "a"), "S-1\tsource", "T-1\tt"], r"1 of the sentences 0\.\.1 have no H- line"),
        ([*record(1, "a"), "H-0\t-1\tb"], r"1 of the sentences 0\.\.1 have no D- line \(0\)"),
    ],
)
def test_a_broken_decoding_is_one_line_with_its_name(lines: List[str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read(lines)
    assert str(caught.value).startswith("gen.out")
    assert len(str(caught.value).splitlines()) == 1


def test_a_sentence_that_only_the_log_counts_is_missed() -> None:
    size = "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | bin test en-de 3 examples"
    with pytest.raises(
        ConfigurationError, match=r"1 of the sentences 0\.\.2 .*\(2\): .*multiple 1"
    ):
        read([size, *record(0, "a"), *record(1, "b")])
    shards = [size, *record(1, "b"), size, *record(0, "a"), *record(2, "c")]
    assert read(shards) == ["a", "b", "c"]


def test_many_missing_sentences_are_not_all_listed() -> None:
    with pytest.raises(ConfigurationError, match=r"98 of .*\(1, 2, 3, 4, 5, \.\.\.\)"):
        read([*record(0, "a"), *record(99, "b")])

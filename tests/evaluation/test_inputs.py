"""What is read: fairseq-generate's output, BPE, tokens as text, and scores of segments."""

import json
import re
from pathlib import Path
from typing import Dict, List, Optional

import pytest
from fairseq.data.data_utils import post_process
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from capsnmt.evaluation.outputs import parse_generate_output
from capsnmt.evaluation.text import REMOVE_BPE, moses_detokenizer, remove_bpe
from tests.evaluation.conftest import Evaluate, scores
from tests.evaluation.outputs import REFERENCE, generated, write_lines

# sentences as fairseq prints them: no line end and no tab inside, everything else may be
SENTENCE = st.text(st.characters(blacklist_characters="\n\t", blacklist_categories=["Cs"]))
LOG = [
    "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [en] dictionary: 200 types",
    "2026-01-01 00:00:00 | INFO | fairseq.tasks.translation | [de] dictionary: 208 types",
]
TRAILER = [
    "2026-01-01 00:00:09 | INFO | fairseq_cli.generate | Translated 3 sentences (9 tokens)",
    "Generate test with beam=5: BLEU4 = 1.00, 20.0/3.0/1.0/0.5 (BP=1.000, ratio=1.2)",
]


def record(number: int, *hypotheses: str) -> List[str]:
    lines = [f"S-{number}\tsource", f"T-{number}\ttarget"]
    for text in hypotheses:
        lines += [f"H-{number}\t-0.5\t{text}", f"D-{number}\t-0.5\t{text}x", f"P-{number}\t-0.1"]
    return lines


def read(lines: List[str]) -> List[str]:
    return parse_generate_output(lines, "gen.out")[0]["H"]


@given(st.permutations(range(6)), st.lists(SENTENCE, min_size=6, max_size=6), st.integers(1, 3))
def test_any_decoding_order_comes_back_as_the_test_set(
    order: List[int], texts: List[str], nbest: int
) -> None:
    lines = list(LOG)
    for number in order:
        further = [f"worse {i}" for i in range(nbest - 1)]
        lines += record(number, texts[number], *further)
    expected = {"S": ["source"] * 6, "H": texts}
    assert parse_generate_output(lines + TRAILER, "gen.out") == (expected, "de")
    log = sorted([*LOG, f"{LOG[0].partition(' [')[0]} data-bin test en-de 6 examples"])
    assert parse_generate_output([*log, *lines[2:]], "gen.out") == (expected, "de")
    of_many = [*lines, LOG[0].replace("[en]", "[fr]")]  # the target is any of them
    assert parse_generate_output(of_many, "gen.out") == (expected, None)


def test_empty_hypotheses_are_kept_with_and_without_their_tab() -> None:
    assert read(["H-1\t-0.5\t", "H-0\t-0.5\ta", "H-2\t-0.5"]) == ["a", "", ""]
    assert read(sorted([*record(0, "a"), *record(1, "b"), *record(2, "c")])) == ["a", "b", "c"]
    assert read(["H-0\t-0.3\tworse", "H-0\t-0.25\ta", "H-0\t-2"]) == ["a"]  # by sort -V


PIECES = st.lists(st.sampled_from(["cap@@", "sul@@", "es", "▁vote", "▁", "@@", "a@@b", "@", "_"]))


@pytest.mark.parametrize("kind", REMOVE_BPE)
@given(PIECES)
def test_bpe_is_removed_as_fairseq_removes_it(kind: str, pieces: List[str]) -> None:
    assert remove_bpe(" ".join(pieces), kind) == post_process(" ".join(pieces), kind)


@pytest.mark.parametrize(
    ("lang", "tokens", "text"),
    [
        ("en", "it &apos;s &quot; here &quot; , 5 @-@ 6 .", 'it\'s "here", 5-6.'),
        ("de", "Rich ##AT##-##AT## Text - &quot; A &quot; .", 'Rich-Text - "A".'),
        ("de", "„ Hallo “ , sagte er .", "„Hallo“, sagte er."),
        ("en", "He said “ hello ” and “ bye ” .", "He said “hello” and “bye”."),
        ("sv", "Han sa ” hej ” till henne .", "Han sa ”hej” till henne."),
        ("ru", "ОАО « Газпром » ( « Мир ! » ) .", "ОАО «Газпром» («Мир!»)."),
        ("de", "Bei 20 ° C und 45 ° : 5 km ² Java ™ .", "Bei 20 °C und 45°: 5 km² Java™."),
        ("fr", "il dit « oui » .", "il dit « oui »."),
        ("fr", "l&apos; homme est là !", "l'homme est là !"),
        ("zh", "我们 去 Google 公司 ， 好 吗 ？", "我们去Google公司，好吗？"),
        ("zh", "“ 54 , 000 名 ” — — 10 : 30 开始 … …", "“54,000名”——10:30开始……"),
        ("zh", "1998 , 2000 年", "1998, 2000年"),
        ("zh-CN", "the New York Times 报道", "the New York Times报道"),
        ("ja", "私 は Google の 学生 です 。", "私はGoogleの学生です。"),
        ("kor", "안녕 하세요 , 여러분 .", "안녕 하세요, 여러분."),
        (None, "das , was ( er ) sagt .", "das, was (er) sagt."),
        ("en", "", ""),
    ],
)
def test_detokenisation_by_language(lang: Optional[str], tokens: str, text: str) -> None:
    assert moses_detokenizer(lang)(tokens) == text


def test_segment_scores_are_read_from_the_file_of_comet_score(
    files: Dict[str, str], tmp_path: Path, evaluate: Evaluate, capsys: pytest.CaptureFixture
) -> None:
    """Which also says what was scored: the files of two systems may have changed places."""
    segments = [
        {"src": "a", "mt": f"{text} ", "ref": "c", "COMET": number, "errors": []}
        for number, text in enumerate(REFERENCE)
    ]
    path = tmp_path / "comet.json"
    path.write_text(json.dumps({"detok.txt": segments}, indent=4), "utf-8")
    given = ["--reference", files["reference"], "--segment-scores", "COMET", f"x={path}"]
    warned = []
    for name in ("good", "half"):
        document = evaluate(f"x={files[name]}", *given)
        assert scores(document, "COMET") == {"x": pytest.approx(sum(range(12)) / 12)}
        warned.append(capsys.readouterr().err)
    other = "6 of 12 scores are of another translation than that of x; score those that are given"
    assert warned == ["", f"warning: {path}: {other}\n"]


class AtSpaces(BaseTokenizer):
    """What MeCab does with spaces, without its dictionary."""

    def __call__(self, line: str) -> str:
        return " ".join(re.findall(r"\S\S?", line))

    def signature(self) -> str:
        return "spaces"


def test_words_that_were_set_apart_cost_no_score(
    tmp_path: Path, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/data.md advises for Japanese: the detokeniser puts them together."""
    module = "sacrebleu.tokenizers.tokenizer_ja_mecab.TokenizerJaMecab"
    monkeypatch.setattr(module, AtSpaces)
    lines = ["わたし は 日本 の 学生 です 。", "東京 の どこ に い ます か ？"] * 6
    given = ["--reference", write_lines(tmp_path / "reference", lines), "--target-lang", "ja"]
    for texts, kind in ((generated(lines), "generate"), (lines, "plain")):
        output = write_lines(tmp_path / kind, texts)
        document = evaluate(output, *given, "--input", kind)
        found = [scores(document, metric)[str(output)] for metric in ("bleu", "chrf", "ter")]
        assert found == pytest.approx([100, 100, 0])
        known = document["systems"][0]["outputs"][0]["scores"]
        said = {metric for metric in known if known[metric]["signature"].endswith("|text:joined")}
        assert said == {"bleu", "ter"}

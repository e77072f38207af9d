"""BPE removal as fairseq does it, and detokenisation that gives text back."""

from __future__ import annotations

import io
from typing import Dict, List, Optional

import pytest
from fairseq.data.data_utils import post_process
from hypothesis import given
from hypothesis import strategies as st

from capsnmt.evaluation.settings import REMOVE_BPE
from capsnmt.evaluation.text import moses_detokenizer, moses_limits, remove_bpe

PIECES = st.lists(st.sampled_from(["cap@@", "sul@@", "es", "▁vote", "▁", "@@", "a@@b", "@", "_"]))


@pytest.mark.parametrize("kind", REMOVE_BPE)
@given(PIECES)
def test_bpe_is_removed_as_fairseq_removes_it(kind: str, pieces: List[str]) -> None:
    assert remove_bpe(" ".join(pieces), kind) == post_process(" ".join(pieces), kind)


def test_bpe_of_real_text_is_undone(ted: Dict[str, List[str]]) -> None:
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    lines = [" ".join(line.split()) for line in ted["reference"][:200]]
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines)), codes, 100)
    bpe = BPE(io.StringIO(codes.getvalue()))
    cut = [bpe.process_line(line) for line in lines]
    assert cut != lines
    assert [remove_bpe(line, "subword_nmt") for line in cut] == lines


def test_detokenising_undoes_tokenising_of_real_text(ted: Dict[str, List[str]]) -> None:
    from sacremoses import MosesTokenizer

    lines = [" ".join(line.split()) for line in ted["reference"][:200]]
    tokenizer, detokenize = MosesTokenizer("en"), moses_detokenizer("en")
    tokens = [tokenizer.tokenize(line, return_str=True) for line in lines]
    restored = [detokenize(line) for line in tokens]
    assert sum(a == b for a, b in zip(tokens, lines)) < 20
    # Moses cannot know every space next to a quotation mark or a dash
    assert sum(a == b for a, b in zip(restored, lines)) > 180


@pytest.mark.parametrize(
    ("lang", "tokens", "text"),
    [
        ("en", "it &apos;s &quot; here &quot; , 5 @-@ 6 .", 'it\'s "here", 5-6.'),
        ("de", "„ Hallo “ , sagte er .", "„Hallo“, sagte er."),
        ("fr", "l&apos; homme est là !", "l'homme est là !"),
        ("zh", "我们 去 Google 公司 ， 好 吗 ？", "我们去Google公司，好吗？"),
        ("zh-CN", "the New York Times 报道", "the New York Times报道"),
        ("ja", "私 は 学生 です 。", "私は学生です。"),
        ("ko", "안녕 하세요 , 여러분 .", "안녕 하세요, 여러분."),
        ("kor", "안녕 하세요 .", "안녕 하세요."),
        ("vi", "tôi có 3 con mèo .", "tôi có 3 con mèo."),
        (None, "das , was ( er ) sagt .", "das, was (er) sagt."),
        ("en", "", ""),
    ],
)
def test_detokenisation_by_language(lang: Optional[str], tokens: str, text: str) -> None:
    assert moses_detokenizer(lang)(tokens) == text


def test_a_language_without_rules_is_reported() -> None:
    assert "'vi'" in str(moses_limits("vi"))
    assert [moses_limits(lang) for lang in ("en", "de", "pt_BR", "zh_CN", "ja", "ko")] == [None] * 6

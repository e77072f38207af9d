"""Tokenised BLEU is multi-bleu.perl's, and its compounds are split by the literature's rule."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest

from capsnmt.evaluation.outputs import Output
from capsnmt.evaluation.scores import COMPOUND_SPLIT, MULTI_BLEU
from capsnmt.evaluation.tokenized import (
    multi_bleu,
    split_compounds,
    tokenized_scores,
    tokens_of,
)

# Printed by Moses' multi-bleu.perl (31473d8) on shared/data/significance, with %.4f in place of
# %.2f; the second after perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g' on both sides.
GOLDEN = {"sys1": (22.4364, 22.4586), "sys2": (24.0389, 23.9754)}


@pytest.mark.parametrize("system", GOLDEN)
def test_real_outputs_have_the_scores_of_multi_bleu_perl(
    ted: Dict[str, List[str]], system: str
) -> None:
    one, other = ted[f"{system}.tokens"], ted["reference.tokens"]
    plain = multi_bleu(one, other, "as-given").score
    split = multi_bleu([*map(split_compounds, one)], [*map(split_compounds, other)], "").score
    assert (round(plain, 4), round(split, 4)) == GOLDEN[system]


def test_without_a_match_of_four_words_the_score_is_zero_and_not_smoothed() -> None:
    assert multi_bleu(["a b c d"], ["a b x d"], "").score == 0


def output(hypotheses: List[str], tokens: List[str]) -> Output:
    return Output("x", "x", hypotheses, tokens, None, None, None)


@pytest.mark.parametrize(
    ("lang", "kinds"),
    [("de", [MULTI_BLEU, COMPOUND_SPLIT]), ("en", [MULTI_BLEU]), (None, [MULTI_BLEU]), ("zh", [])],
)
def test_compounds_are_split_into_german_only_and_nothing_is_without_spaces(
    lang: Optional[str], kinds: List[str]
) -> None:
    text = ["Das ist der E-Mail-Verkehr, sagte er."]
    tokens = tokens_of([output(text, [])], text, lang, None)
    scores = tokenized_scores(tokens, "x", lang)
    assert list(scores) == kinds
    assert all(score.score == pytest.approx(100) for score in scores.values())


def test_a_wrong_half_of_a_compound_costs_less_when_it_is_split() -> None:
    right, wrong = ["so ist der E-Mail in der Tat"], ["so ist der E-Brief in der Tat"]
    tokens = tokens_of([output(wrong, [])], right, "de", None)
    scores = tokenized_scores(tokens, "x", "de")
    assert scores[COMPOUND_SPLIT].score > scores[MULTI_BLEU].score
    assert scores[MULTI_BLEU].signature.startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:none")
    assert "text:moses.de-sacremoses." in scores[MULTI_BLEU].signature
    assert scores[COMPOUND_SPLIT].signature.endswith("+compound-split")


def test_hyphens_stay_in_words_and_both_sides_get_the_same_tokens() -> None:
    tokens = tokens_of(
        [output(["Don't re-do it."], ["never read"])], ["Don't re-do it."], "en", None
    )
    assert tokens is not None
    assert tokens.reference == tokens.lines["x"] == ["Don 't re-do it ."]


def test_with_a_tokenised_reference_the_tokens_are_those_that_were_decoded(tmp_path) -> None:
    path = tmp_path / "reference"
    path.write_text("Don &apos;t re @-@ do it .\n", "utf-8")
    tokens = tokens_of(
        [output(["never read"], ["Don &apos;t re @-@ do it ."])], ["never read"], "en", str(path)
    )
    assert tokenized_scores(tokens, "x", "en")[MULTI_BLEU].score == pytest.approx(100)

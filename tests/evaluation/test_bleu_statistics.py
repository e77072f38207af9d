"""Summed segment statistics give the corpus score, BLEU by length and the sign test."""

from __future__ import annotations

from typing import Dict, List

import numpy as np
import pytest
from scipy.stats import binom

from capsnmt.evaluation.bleu_statistics import bleu_of, bleu_statistics
from capsnmt.evaluation.lengths import BUCKETS, bleu_by_length, bucket_of, segments_by_length
from capsnmt.evaluation.scoring import build_metrics
from capsnmt.evaluation.significance import sign_test

SIZE = 600


def corpus_bleu(hypotheses: List[str], reference: List[str]) -> float:
    return build_metrics("en", reference)["bleu"].corpus_score(hypotheses, None).score


@pytest.fixture(scope="module")
def texts(ted: Dict[str, List[str]]) -> Dict[str, List[str]]:
    """The first segments, among them some of every length."""
    return {name: lines[:SIZE] for name, lines in ted.items()}


@pytest.fixture(scope="module")
def statistics(texts: Dict[str, List[str]]) -> Dict[str, np.ndarray]:
    names = ("sys1", "sys2")
    return {name: bleu_statistics("en", texts[name], texts["reference"]) for name in names}


def test_the_sum_over_all_segments_is_the_corpus_score(
    texts: Dict[str, List[str]], statistics: Dict[str, np.ndarray]
) -> None:
    for name, rows in statistics.items():
        assert bleu_of(rows.sum(0)) == pytest.approx(corpus_bleu(texts[name], texts["reference"]))


def test_each_length_scores_as_its_segments_alone(
    texts: Dict[str, List[str]], statistics: Dict[str, np.ndarray]
) -> None:
    buckets = bucket_of(texts["source"])
    found = bleu_by_length(statistics["sys1"], buckets)
    limits = [(0, 9), (10, 19), (20, 29), (30, 39), (40, 49), (50, 10**6)]
    assert len(found) == len(limits) == len(BUCKETS)
    counts = segments_by_length(buckets).values()
    for bleu, count, (low, high) in zip(found.values(), counts, limits):
        chosen = [i for i, line in enumerate(texts["source"]) if low <= len(line.split()) <= high]
        assert len(chosen) == count > 0
        expected = corpus_bleu(
            [texts["sys1"][i] for i in chosen], [texts["reference"][i] for i in chosen]
        )
        assert bleu == pytest.approx(expected)


def test_a_length_without_a_segment_has_no_score() -> None:
    rows = bleu_statistics("en", ["a b c d e"], ["a b c d e"])
    assert bleu_by_length(rows, bucket_of(["x " * 12])) == {"10-20": pytest.approx(100)}


def test_the_sign_test_is_that_of_collins_et_al_by_complete_corpora(
    texts: Dict[str, List[str]], statistics: Dict[str, np.ndarray]
) -> None:
    size = 20
    base, other, reference = (texts[name][:size] for name in ("sys1", "sys2", "reference"))
    before = corpus_bleu(base, reference)
    signs = []
    for i in range(size):
        after = corpus_bleu([*base[:i], other[i], *base[i + 1 :]], reference)
        signs.append(
            0 if after == pytest.approx(before, abs=1e-12) else 1 if after > before else -1
        )
    test = sign_test(statistics["sys1"][:size], statistics["sys2"][:size])
    assert (test.better, test.worse, test.ties) == tuple(map(signs.count, (1, -1, 0)))
    decided, fewer = test.better + test.worse, min(test.better, test.worse)
    assert test.p_value == pytest.approx(min(1, 2 * binom.cdf(fewer, decided, 0.5)))


def test_the_sign_test_of_a_system_with_itself_has_ties_only(
    statistics: Dict[str, np.ndarray],
) -> None:
    test = sign_test(statistics["sys1"], statistics["sys1"])
    assert (test.better, test.worse, test.ties, test.p_value) == (0, 0, SIZE, 1.0)


def test_the_sign_test_needs_pairs(statistics: Dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=f"{SIZE} and 9 segments"):
        sign_test(statistics["sys1"], statistics["sys2"][:9])

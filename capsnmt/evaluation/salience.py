"""What distinguishes two systems, by compare-mt (Neubig et al. 2019): n-grams and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple


@dataclass(frozen=True)
class SalientNgrams:
    """The n-grams (n = 1..4) whose matches with the reference differ most between two systems.

    Attributes:
        left: (n-gram, matches of the left system, matches of the right system) of the n-grams that
            the left system matches more often, the most characteristic first.
        right: the same of those that the right system matches more often.
    """

    left: List[Tuple[str, int, int]]
    right: List[Tuple[str, int, int]]


def salient_ngrams(
    reference: Sequence[str], left: Sequence[str], right: Sequence[str], count: int
) -> SalientNgrams:
    """Find the characteristic n-grams of two systems (``compare_type=match``, alpha 1).

    With m the matches of an n-gram, its rank is (m_left + 1) / (m_left + m_right + 2). Nothing is
    random. **D**: of equal ranks the longer n-gram comes first, then alphabetical order, so that
    the same texts give the same table.

    Args:
        reference, left, right: tokens of each segment, separated by spaces.
        count: number of n-grams for each side; ties are never returned.

    Raises:
        ImportError: compare-mt is not installed; see
            :func:`~capsnmt.evaluation.compare_mt.is_installed`.
    """
    from compare_mt.ngram_utils import compare_ngrams
    from compare_mt.stat_utils import extract_salient_features

    tokens = [line.split() for line in reference]
    _, one, _, _ = compare_ngrams(tokens, [line.split() for line in left])
    _, other, _, _ = compare_ngrams(tokens, [line.split() for line in right])
    ranks = extract_salient_features(one, other, alpha=1.0)

    def shown(sign: int) -> List[Tuple[str, int, int]]:
        best = sorted(ranks, key=lambda ngram: (-sign * ranks[ngram], -len(ngram), ngram))[:count]
        return [
            (" ".join(ngram), one[ngram], other[ngram])
            for ngram in best
            if sign * (one[ngram] - other[ngram]) > 0
        ]

    return SalientNgrams(shown(1), shown(-1))


def salient_sentences(
    reference: Sequence[str], left: Sequence[str], right: Sequence[str], count: int
) -> Tuple[List[int], List[int]]:
    """Find the sentences where two systems differ most in sentence BLEU.

    **D**: of equal differences the first sentence of the test set comes first.

    Args:
        reference, left, right: tokens of each segment, separated by spaces.
        count: number of sentences for each side; ties are never returned.

    Returns:
        Numbers (from 0) of the sentences that the left system translates better, and of those that
        the right one does; the greatest difference first.

    Raises:
        ImportError: compare-mt is not installed; see
            :func:`~capsnmt.evaluation.compare_mt.is_installed`.
    """
    from compare_mt.scorers import SentBleuScorer

    scorer = SentBleuScorer()

    def bleu(target: str, line: str) -> float:
        return float(scorer.score_sentence(target.split(), line.split())[0])

    gains = [
        bleu(target, other) - bleu(target, one) if one != other else 0.0
        for target, one, other in zip(reference, left, right)
    ]

    def shown(sign: int) -> List[int]:
        best = sorted(range(len(gains)), key=lambda number: -sign * gains[number])[:count]
        return [number for number in best if sign * gains[number] > 0]

    return shown(-1), shown(1)

"""The sign test of Collins, Koehn and Kucerova (2005), which Dou et al. (2019) use."""

from __future__ import annotations

import numpy as np

from capsnmt.evaluation.bleu_statistics import bleu_of
from capsnmt.evaluation.scores import SignTest


def sign_test(baseline: np.ndarray, system: np.ndarray) -> SignTest:
    """Test whether a system's sentences are as often better than the baseline's as worse.

    BLEU does not score single sentences. Following Collins et al., sentence i is better if the
    *corpus* BLEU of the baseline rises when its translation i alone is replaced by the system's,
    worse if it falls, and a tie if it does not change. Under the null hypothesis ``better`` is
    binomial with p = 1/2 among the sentences that are not ties.

    **D**: ties count for neither side, as in the plain sign test (sharing them out would be more
    conservative); the test is two-sided. Corpus BLEU is that of
    :func:`~capsnmt.evaluation.bleu_statistics.bleu_of`.

    >>> one = np.array([[4, 4, 4, 3, 2, 1, 4, 3, 2, 1]])
    >>> two = np.array([[4, 4, 2, 1, 0, 0, 4, 3, 2, 1]])
    >>> sign_test(two.repeat(6, 0), one.repeat(6, 0))
    SignTest(better=6, worse=0, ties=0, p_value=0.03125)

    Args:
        baseline: statistics ``[segments, 10]`` of the baseline, from
            :func:`~capsnmt.evaluation.bleu_statistics.bleu_statistics`.
        system: statistics of the other system.

    Raises:
        ValueError: the numbers of segments differ.
    """
    if baseline.shape != system.shape:
        raise ValueError(f"{len(baseline)} and {len(system)} segments are not a paired test set")
    total = baseline.sum(0)
    before = bleu_of(total)
    changed = np.flatnonzero((baseline != system).any(1))
    after = np.array([bleu_of(total - baseline[i] + system[i]) for i in changed])
    better, worse = int((after > before).sum()), int((after < before).sum())
    ties = len(baseline) - better - worse
    return SignTest(better, worse, ties, two_sided(better, worse))


def two_sided(better: int, worse: int) -> float:
    """Return P(X <= min(better, worse)) + P(X >= max(better, worse)), X binomial with p = 1/2.

    >>> two_sided(6, 0), two_sided(3, 3), two_sided(0, 0)
    (0.03125, 1.0, 1.0)
    """
    decided = better + worse
    ways, tail = 1, 0  # to choose k sentences; to choose at most k
    for k in range(min(better, worse) + 1):
        tail += ways
        ways = ways * (decided - k) // (k + 1)
    return min(1.0, 2 * tail / 2**decided)

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
    from scipy.stats import binomtest

    if baseline.shape != system.shape:
        raise ValueError(f"{len(baseline)} and {len(system)} segments are not a paired test set")
    total = baseline.sum(0)
    before = bleu_of(total)
    changed = np.flatnonzero((baseline != system).any(1))
    after = np.array([bleu_of(total - baseline[i] + system[i]) for i in changed])
    better, worse = int((after > before).sum()), int((after < before).sum())
    decided = better + worse
    p_value = float(binomtest(better, decided, 0.5).pvalue) if decided else 1.0
    return SignTest(better, worse, len(baseline) - decided, p_value)

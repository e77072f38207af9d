"""The smallest difference in BLEU that an experiment is likely to show (Card et al. 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

import numpy as np

from capsnmt.evaluation.bleu_statistics import bleu_of
from capsnmt.evaluation.seeds import spread
from capsnmt.evaluation.settings import BOOTSTRAP, SAMPLES, SEED

LEVEL, POWER = 0.05, 0.8


@dataclass(frozen=True)
class SmallestDifference:
    """What a comparison of two systems is likely to show, in BLEU.

    Attributes:
        test_set: the smallest difference for other sentences and the same trainings.
        seeds: the same for other trainings and the same sentences; ``None`` if a system was
            trained once.
        both: the same for other sentences and other trainings; ``None`` likewise.
    """

    test_set: float
    seeds: Optional[float]
    both: Optional[float]


def smallest_difference(
    baseline: Sequence[np.ndarray], system: Sequence[np.ndarray]
) -> SmallestDifference:
    r"""Estimate the smallest difference that a test at level 0.05 finds with probability 0.8.

    With :math:`\sigma` the standard error of the difference of the means over the seeds, it is
    :math:`(t_{1 - 0.05 / 2} + t_{0.8}) \sigma`, 2.8 :math:`\sigma` for many degrees of freedom:

    - of the sentences: :math:`\sigma^2` is the variance of the difference over bootstrap resamples
      of the test set, the same for all outputs; no limit on the degrees of freedom.
    - of the seeds: :math:`\sigma^2 = s_1^2 / n_1 + s_2^2 / n_2`, with the sample variances of n
      trainings, and Welch's degrees of freedom.
    - of both: the sum, as sentences and seeds are drawn independently.

    **D**: the deviations are taken as known. With three seeds a t test with a common variance finds
    such a difference with probability 0.79, Welch's with 0.68 (simulated).

    Args:
        baseline: statistics ``[segments, 10]`` of each output of the baseline, from
            :func:`~capsnmt.evaluation.bleu_statistics.bleu_statistics`.
        system: the same of the other system.
    """
    of_sentences = (float(np.var(_differences(baseline, system), ddof=1)), math.inf)
    of_seeds = []
    for outputs in (baseline, system):
        deviation = spread([bleu_of(each.sum(0)) for each in outputs]).std
        if deviation is None:
            return SmallestDifference(_smallest([of_sentences]), None, None)
        of_seeds.append((deviation**2 / len(outputs), len(outputs) - 1))
    return SmallestDifference(
        _smallest([of_sentences]), _smallest(of_seeds), _smallest([of_sentences, *of_seeds])
    )


def _differences(baseline: Sequence[np.ndarray], system: Sequence[np.ndarray]) -> List[float]:
    """Return the difference of the mean BLEU on each resample of the test set."""
    segments = len(baseline[0])
    # how often each segment is in each resample
    counts = np.random.RandomState(SEED).multinomial(
        segments, np.full(segments, 1 / segments), SAMPLES[BOOTSTRAP]
    )

    def mean_bleu(outputs: Sequence[np.ndarray]) -> np.ndarray:
        return np.mean([[bleu_of(total) for total in counts @ each] for each in outputs], axis=0)

    return list(mean_bleu(system) - mean_bleu(baseline))


def _smallest(parts: Sequence[Tuple[float, float]]) -> float:
    """Return the smallest difference from independent parts (variance, degrees of freedom)."""
    from scipy.stats import t

    variance = sum(part for part, _ in parts)
    if not variance:
        return 0.0
    uncertainty = sum(part**2 / freedom for part, freedom in parts)
    freedom = variance**2 / uncertainty if uncertainty else math.inf
    return float(t.ppf(1 - LEVEL / 2, freedom) + t.ppf(POWER, freedom)) * math.sqrt(variance)

"""How many seeds show a difference: the power of the test over seeds and sentences."""

import math
from typing import Iterator, Optional, Sequence, Tuple

import numpy as np

from capsnmt.evaluation.scores import Comparison, Plan

DRAWS = 20000  # experiments: a probability is within 0.7 points
SHOWN = (2, 3, 4, 5, 6, 8, 10, 15, 20)  # numbers of seeds
WANTED = 0.8  # Card et al. 2020
MOST = 200  # seeds


def plans(effect: float, comparisons: Sequence[Comparison]) -> Iterator[Plan]:
    """Plan an experiment by each comparison in BLEU that says something of seeds.

    The deviation of a seed is that of both systems together (**D**: three seeds of one say little).
    What sentences add to the variance stays, however many seeds there are.
    """
    for each in comparisons:
        if each.metric != "bleu" or each.deviation is None or each.variance_over_sentences is None:
            continue
        of_seed, of_sentences = each.deviation**2, each.variance_over_sentences
        yield Plan(
            system=each.system,
            baseline=each.baseline,
            metric=each.metric,
            effect=effect,
            deviation=each.deviation,
            deviation_over_sentences=math.sqrt(of_sentences),
            power={n: power(effect, (n, n), of_seed, of_sentences) for n in SHOWN},
            needed=needed(effect, of_seed, of_sentences),
            shown=detectable(each.seeds, of_seed, of_sentences),
        )


def power(
    effect: float, seeds: Tuple[int, int], of_seed: float, of_sentences: float = 0.0
) -> float:
    """Return the probability that a difference has p < 0.05, with some seeds of each system.

    Drawn experiments with normal scores go through the test of
    :func:`~capsnmt.evaluation.significance.difference_of`. ``of_seed`` is the variance of a seed.

    >>> [round(power(0.5, (seeds, seeds), 0.25**2), 2) for seeds in (3, 6)]
    [0.37, 0.86]
    """
    from scipy.stats import t

    random, sizes = np.random.default_rng(1), np.array(seeds)[:, None]
    spread = math.sqrt(float((of_seed / sizes).sum()) + of_sentences)
    deltas = effect + spread * random.standard_normal(DRAWS)
    variances = of_seed / sizes * random.chisquare(sizes - 1, (2, DRAWS)) / (sizes - 1)
    total = variances.sum(0) + of_sentences
    freedom = total**2 / (variances**2 / (sizes - 1)).sum(0)
    return float((2 * t.sf(np.abs(deltas) / np.sqrt(total), freedom) < 0.05).mean())


def needed(effect: float, of_seed: float, of_sentences: float) -> Optional[int]:
    """Return how many seeds show a difference with a probability of 0.8; ``None`` above 200."""
    for seeds in range(2, MOST + 1):
        if power(effect, (seeds, seeds), of_seed, of_sentences) >= WANTED:
            return seeds
    return None


def detectable(seeds: Tuple[int, int], of_seed: float, of_sentences: float) -> float:
    """Return the difference that so many seeds show with a probability of 0.8."""
    from scipy.optimize import brentq

    def lacking(effect: float) -> float:
        return WANTED - power(effect, seeds, of_seed, of_sentences)

    return float(brentq(lacking, 0, 100 * math.sqrt(of_seed + of_sentences), rtol=1e-6))

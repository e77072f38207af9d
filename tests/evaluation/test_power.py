"""The smallest difference that a comparison is likely to show."""

from __future__ import annotations

import math
from typing import List

import numpy as np
import pytest
from scipy.stats import t, ttest_ind

from capsnmt.evaluation.bleu_statistics import bleu_of, bleu_statistics
from capsnmt.evaluation.power import LEVEL, POWER, _smallest, smallest_difference

Z = 1.959964 + 0.841621  # quantiles of the normal distribution for LEVEL and POWER
REFERENCE = [f"the {n % 7} cats of number {n} sat on the mat of {n % 5}" for n in range(60)]


def output(seed: int, errors: float, reference: List[str] = REFERENCE) -> np.ndarray:
    """Return the statistics of a translation with a share of wrong words."""
    draw = np.random.RandomState(seed)
    lines = [
        " ".join("wrong" if draw.rand() < errors else word for word in line.split())
        for line in reference
    ]
    return bleu_statistics("en", lines, reference)


def bleu(statistics: np.ndarray) -> float:
    return bleu_of(statistics.sum(0))


def test_it_is_the_standard_error_of_the_paired_bootstrap() -> None:
    one, other = output(1, 0.1), output(2, 0.15)
    draw = np.random.RandomState(5)
    differences = []
    for _ in range(1500):  # a loop of its own random numbers
        chosen = draw.randint(0, len(one), len(one))
        differences.append(bleu(other[chosen]) - bleu(one[chosen]))
    found = smallest_difference([one], [other])
    assert found.test_set == pytest.approx(Z * np.std(differences), rel=0.1)
    assert (found.seeds, found.both) == (None, None)


def test_it_halves_with_four_times_the_sentences() -> None:
    short = smallest_difference([output(1, 0.1)], [output(2, 0.15)]).test_set
    many = [*REFERENCE, *REFERENCE, *REFERENCE, *REFERENCE]
    long = smallest_difference([output(1, 0.1, many)], [output(2, 0.15, many)]).test_set
    assert long == pytest.approx(short / 2, rel=0.2)


def test_of_the_seeds_it_is_that_of_welch() -> None:
    baseline = [output(seed, 0.1) for seed in range(3)]
    system = [output(seed, 0.15) for seed in range(3, 8)]
    found = smallest_difference(baseline, system)
    parts = [
        np.var([bleu(each) for each in outputs], ddof=1) / len(outputs)
        for outputs in (baseline, system)
    ]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 4)
    factor = t.ppf(1 - LEVEL / 2, freedom) + t.ppf(POWER, freedom)
    assert found.seeds == pytest.approx(factor * math.sqrt(sum(parts)))
    assert found.both is not None
    assert found.seeds is not None
    assert found.both > found.test_set
    # one trained once: nothing is known about its seeds
    assert smallest_difference(baseline, system[:1]).seeds is None


def test_equal_outputs_differ_by_nothing() -> None:
    same = output(1, 0.1)
    found = smallest_difference([same, same], [same, same])
    assert (found.test_set, found.seeds, found.both) == (0, 0, 0)


def test_a_difference_of_that_size_is_found_with_that_probability() -> None:
    """By simulation with normal errors, for three seeds on each side."""
    draw = np.random.RandomState(1)
    size, deviation, seeds = 20_000, 1.0, 3
    smallest = _smallest([(deviation**2 / seeds, seeds - 1)] * 2)
    one = draw.normal(0, deviation, (seeds, size))
    other = draw.normal(smallest, deviation, (seeds, size))
    found = (ttest_ind(one, other).pvalue < LEVEL).mean()
    assert POWER - 0.02 < found < POWER + 0.02

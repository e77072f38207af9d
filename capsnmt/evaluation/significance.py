"""Tests of differences: over sentences of a test set, and over seeds, sentences and test sets."""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from msgspec.structs import replace

from capsnmt.evaluation.metrics import Measure
from capsnmt.evaluation.resampling import Scored
from capsnmt.evaluation.scores import (
    BOOTSTRAP,
    CENTRED,
    FEW,
    RANDOMIZATION,
    Comparison,
    Method,
    Score,
    SignTest,
    Test,
)

TIE = 1e-9  # scores of the same sums differ by less
LEVEL = 0.95
NONE = np.zeros(0)
Seeds = Tuple[np.ndarray, np.ndarray]  # scores of a system's seeds, and [seeds, resamples] of them


def p_value(
    method: Method, delta: float, resampled: np.ndarray, exchanged: np.ndarray = NONE
) -> float:
    """Return p of a difference, from those of the draws, d_b.

    - Approximate randomisation: (#{b: abs(d_b) >= abs(d)} + 1) / (B + 1).
    - Centred bootstrap: (#{b: abs(d_b - mean(d_b)) >= abs(d)} + 1) / (B + 1).
    - sacreBLEU's bootstrap: (#{b: abs(d_b) - mean(abs(d_b)) > abs(d)} + 1) / (B + 1), and 1 where
      d = 0. Of a difference that is not near zero it counts one side: twice as many differences
      that are none have "p < 0.05".

    **D**: a difference that is as large counts, as p is defined; sacreBLEU's randomisation counts
    larger ones only.
    """
    draws = exchanged if method == RANDOMIZATION else resampled
    if method == BOOTSTRAP:
        if delta == 0:
            return 1.0
        counted = np.abs(draws) - np.abs(draws).mean() > abs(delta) + TIE
    else:
        centre = 0 if method == RANDOMIZATION else draws.mean()
        counted = np.abs(draws - centre) >= abs(delta) - TIE
    return float((counted.sum() + 1) / (len(draws) + 1))


def scores_of(scored: Scored, pairs: Sequence[int], test: Optional[Test]) -> List[Score]:
    """Return the scores of some outputs by one metric, each tested against its pair."""
    found = []
    of_test = slice(None if test is None or test.method == RANDOMIZATION else test.samples)
    resampled = scored.resampled[:, of_test]
    for number, (score, pair) in enumerate(zip(scored.scores, pairs)):
        known: Dict[str, Any] = {}
        if test is not None:
            low, high = interval_of(resampled[number])
            known["ci"] = (high - low) / 2
            if pair != number:
                delta = score - scored.scores[pair]
                drawn = resampled[number] - resampled[pair]
                p = p_value(test.method, delta, drawn, scored.exchanged[number])
                known.update(delta=delta, interval=interval_of(drawn), p_value=p)
        found.append(Score(score=score, signature=scored.measure.signature, **known))
    return found


def interval_of(draws: np.ndarray) -> Tuple[float, float]:
    """Return the ends of the interval with 95% of the draws: those of sacreBLEU, 1/40 from each."""
    ordered, skipped = np.sort(draws), len(draws) // 40
    return float(ordered[skipped]), float(ordered[len(draws) - skipped - 1])


def student(delta: float, variance: float, freedom: float) -> Tuple[float, Tuple[float, float]]:
    """Return p and the 95% interval of a difference that has Student's t."""
    from scipy.stats import t

    error = math.sqrt(variance)
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    return float(2 * t.sf(abs(delta) / error, freedom)), (delta - reach, delta + reach)


def difference_of(one: Seeds, other: Seeds, segments: float = math.inf) -> Dict[str, Any]:
    r"""Return what a comparison says of two systems' seeds, sentences and test sets.

    A hierarchical bootstrap draws the seeds of each system, then the sentences of each test set.
    With :math:`x_i` the score of seed i of n and :math:`x_{ib}` the same on resample b of the
    sentences, which all seeds share, the variance of :math:`d = \bar x_1 - \bar x_2` is

    .. math:: V = \underbrace{\sum \frac{s^2}{n}}_{seeds} + \max\Bigl(0,
        \underbrace{\mathrm{var}_b(\bar x_{1b} - \bar x_{2b})}_{sentences} - \underbrace{\sum
        \frac{1}{n (n - 1)} \sum_i \mathrm{var}_b(x_{ib} - \bar x_b)}_{both}\Bigr),

    and :math:`d / \sqrt V` has Student's t with Satterthwaite's degrees of freedom,
    :math:`V^2 / \sum v^2 / \nu`, where :math:`\nu` is n - 1 of each :math:`v = s^2 / n`, and S - 1
    of the part that S sentences add. A variance over resamples of S sentences is multiplied by
    S / (S - 1).

    **D**: this is the bootstrap in closed form where there is one. Drawing n of n seeds has
    (n - 1) / n of the variance :math:`s^2 / n`, and the luck of a seed with these sentences would
    count three times (Owen 2007, *The pigeonhole bootstrap*): at no difference the plain draws
    have p < 0.05 in 0 to 20% of the experiments, this in about 5% (docs/evaluation.md).

    Nothing is returned unless both have several seeds, and something varies. ``segments`` are those
    of the smallest test set.
    """
    both = (one, other)
    sizes = [len(scores) for scores, _ in both]
    if min(sizes) < 2:
        return {}
    seeds = [float(scores.var(ddof=1)) / n for (scores, _), n in zip(both, sizes)]
    of_seeds = sum(seeds)
    if of_seeds < TIE**2:  # all seeds are one output: nothing is known of seeds
        return {}
    drawn = one[1].mean(0) - other[1].mean(0)
    luck = sum(
        float((resampled - resampled.mean(0)).var(1).sum()) / (n * (n - 1))
        for (_, resampled), n in zip(both, sizes)
    )
    of_sentences = max(0.0, (float(drawn.var()) - luck) / (1 - 1 / segments))
    delta, variance = float(one[0].mean() - other[0].mean()), of_seeds + of_sentences
    uncertain = sum(v**2 / (n - 1) for v, n in zip(seeds, sizes))
    freedom = variance**2 / (uncertain + of_sentences**2 / (segments - 1))
    p, interval = student(delta, variance, freedom)
    welch_p_value, welch_interval = student(delta, of_seeds, of_seeds**2 / uncertain)
    pooled = sum(v * n * (n - 1) for v, n in zip(seeds, sizes)) / (sum(sizes) - 2)
    return {
        "p_value": p,
        "interval": interval,
        "variance_over_seeds": of_seeds,
        "variance_over_sentences": of_sentences,
        "freedom": freedom,
        "deviation": math.sqrt(pooled),
        "sentences_p_value": p_value(CENTRED, delta, drawn),
        "welch_p_value": welch_p_value,
        "welch_interval": welch_interval,
    }


def compare(
    names: Mapping[str, Sequence[int]], sets: Sequence[Mapping[str, Scored]], test: Test
) -> List[Comparison]:
    """Compare each system with the first, by every metric that all test sets have.

    The score of a system is the mean over its outputs and over the test sets. Between two outputs
    the test is over sentences; between seeds of both systems over seeds and sentences. Between one
    output and several there is none: nothing is known of the other seeds of the one.

    Over seeds there is none either on test sets of fewer than 10 segments.

    ``names`` has the numbers of each system's outputs, ``sets`` metric -> scores of each test set.
    """
    (baseline, firsts), *others = names.items()
    found: List[Comparison] = []
    for metric in sets[0]:
        if any(metric not in each for each in sets):
            continue
        of_sets = [each[metric] for each in sets]
        scores, resampled, exchanged = (
            np.mean([getattr(each, name) for each in of_sets], 0)
            for name in ("scores", "resampled", "exchanged")
        )
        segments = min(each.segments for each in of_sets)
        of_metric: List[Comparison] = []
        for name, own in others:
            delta = float(scores[[*own]].mean() - scores[[*firsts]].mean())
            known: Dict[str, Any] = {}
            if len(own) == len(firsts) == 1:
                drawn = resampled[own[0]] - resampled[firsts[0]]
                drawn = drawn[: None if test.method == RANDOMIZATION else test.samples]
                p = p_value(test.method, delta, drawn, exchanged[own[0]])
                known = {"p_value": p, "interval": interval_of(drawn)}
            elif segments >= FEW:
                ours, theirs = ((scores[[*each]], resampled[[*each]]) for each in (own, firsts))
                known = difference_of(ours, theirs, segments)
            seeds = len(own), len(firsts)
            of_metric.append(
                Comparison(
                    system=name, baseline=baseline, metric=metric, seeds=seeds, delta=delta, **known
                )
            )
        found += corrected(of_metric)
    return found


def corrected(family: Sequence[Comparison]) -> List[Comparison]:
    """Return the comparisons of one table, with p-values corrected for how many there are.

    **D**: over seeds the larger of p and that over sentences alone is corrected. Few seeds may
    agree by luck, more than their sentences would let them; no mark is given for that.
    """
    known = [max(x.p_value, x.sentences_p_value or 0.0) for x in family if x.p_value is not None]
    values = iter(holm(known))
    return [
        each if each.p_value is None else replace(each, corrected_p_value=next(values))
        for each in family
    ]


def corrected_together(
    places: Mapping[str, Sequence[Comparison]], metric: str
) -> Dict[str, Dict[str, Comparison]]:
    """Return the comparisons by one metric, by place and system, corrected for all of them."""
    chosen = [(key, x) for key, found in places.items() for x in found if x.metric == metric]
    by_place: Dict[str, Dict[str, Comparison]] = {}
    for (key, _), each in zip(chosen, corrected([x for _, x in chosen])):
        by_place.setdefault(key, {})[each.system] = each
    return by_place


def holm(p_values: Sequence[float]) -> List[float]:
    """Return p-values corrected for their number (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[number]))
        corrected[number] = least
    return corrected


def sign_test(bleu: Measure, baseline: np.ndarray, system: np.ndarray) -> SignTest:
    """Test whether a system's sentences are as often better than the baseline's as worse.

    This is the test of Collins, Koehn and Kucerova (2005), which Dou et al. (2019) use. BLEU does
    not score single sentences. Following Collins et al., sentence i is better if the *corpus* BLEU
    of the baseline rises when its translation i alone is replaced by the system's, worse if it
    falls, and a tie if it does not change. Under the null hypothesis ``better`` is binomial with
    p = 1/2 among the sentences that are not ties.

    **D**: ties count for neither side, as in the plain sign test (sharing them out would be more
    conservative); the test is two-sided.

    ``baseline`` and ``system`` are the ``[segments, 10]`` of
    :func:`~capsnmt.evaluation.metrics.smoothed_bleu`.
    """
    total = baseline.sum(0)
    before = bleu.score(total)
    changed = np.flatnonzero((baseline != system).any(1))
    after = np.array([bleu.score(total - baseline[i] + system[i]) for i in changed])
    better, worse = int((after > before).sum()), int((after < before).sum())
    decided = better + worse
    tail = sum(math.comb(decided, k) for k in range(min(better, worse) + 1))
    p = min(1.0, 2 * tail / 2**decided)
    return SignTest(better=better, worse=worse, ties=len(baseline) - decided, p_value=p)

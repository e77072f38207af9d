"""Tests against the baseline: sacreBLEU's, with the seed as an argument, and the sign test."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from unittest import mock

import numpy as np

from capsnmt.evaluation.bleu_statistics import bleu_of
from capsnmt.evaluation.outputs import Output, SystemOutputs, outputs_of
from capsnmt.evaluation.references import baseline_output, warn
from capsnmt.evaluation.scores import BOOTSTRAP, RANDOMIZATION, Score, SignTest, Test
from capsnmt.evaluation.scoring import score_system

SEED_VARIABLE = "SACREBLEU_SEED"
TYPES = {BOOTSTRAP: "bs", RANDOMIZATION: "ar"}  # sacreBLEU's names


def score_outputs(
    systems: Sequence[SystemOutputs],
    segments: Mapping[str, Sequence[Any]],
    metrics: Dict[str, Any],
    test: Optional[Test],
    of: str = "",
) -> Dict[str, Dict[str, Score]]:
    """Score all outputs and test each against the baseline.

    All outputs that are tested against one output of the baseline share the random numbers. Where
    the baseline has an output for each seed, each seed is a test of its own.

    Args:
        systems: all systems, the baseline first.
        segments: label of each output -> what the metrics score of each segment.
        metrics: name -> metric.
        test: the test; ``None`` for no test.
        of: how a warning begins.

    Returns:
        Label of each output -> name of each metric -> score.
    """
    if test is None:
        return {
            each.label: score_system(metrics, segments[each.label]) for each in outputs_of(systems)
        }
    baseline, *others = systems
    scores: Dict[str, Dict[str, Score]] = {}
    for first in baseline.outputs:
        against: List[Output] = [
            output
            for system in others
            for position, output in enumerate(system.outputs)
            if baseline_output(baseline, position) is first
        ]
        group = [first, *against]
        tested = paired_test([(each.label, segments[each.label]) for each in group], metrics, test)
        scores.update(zip((each.label for each in group), tested))
        for output in against:
            if segments[output.label] == segments[first.label]:
                # sacreBLEU counts no sample as a greater difference than none at all
                equal = f"{output.label} equals {first.label} in every sentence"
                warn(f"{of}{equal}: ignore its p-value")
    return scores


def paired_test(
    systems: Sequence[Tuple[str, Sequence[Any]]],
    metrics: Dict[str, Any],
    test: Test,
) -> List[Dict[str, Score]]:
    """Score systems and test each against the first.

    With d the difference on the test set and d_b that of sample b of B:

    - Paired bootstrap resampling (Koehn 2004): sample b draws segments with replacement, and scores
      both systems on them. p = (#{b: abs(d_b) - mean(abs(d_b)) > abs(d)} + 1) / (B + 1).
    - Paired approximate randomization (Riezler and Maxwell 2005): sample b exchanges the two
      systems' translations of each segment with probability 1/2.
      p = (#{b: abs(d_b) > abs(d)} + 1) / (B + 1). There is no confidence interval.

    Args:
        systems: (name, segments), the baseline first.
        metrics: what :func:`~capsnmt.evaluation.scoring.build_metrics` returns.
        test: the test.

    Returns:
        The scores of each system by metric, in the order given.
    """
    from sacrebleu.significance import PairedTest

    with mock.patch.dict(os.environ, {SEED_VARIABLE: str(test.seed)}):
        paired = PairedTest(
            list(systems),
            metrics,
            references=None,
            test_type=TYPES[test.method],
            n_samples=test.samples,
        )
        names, results = paired()
    # sacreBLEU returns the metrics under names of its own, in the order they were given
    scores = {
        key: list(_scores(results[name], metrics[key].get_signature().format()))
        for key, name in zip(metrics, names)
    }
    return [{key: scores[key][index] for key in metrics} for index in range(len(systems))]


def _scores(results: Sequence[Any], signature: str) -> Iterator[Score]:
    """Convert what sacreBLEU found of the baseline and of the systems tested against it."""
    first = float(results[0].score)
    for result in results:
        score = float(result.score)
        p_value, ci = (
            None if value is None else float(value) for value in (result.p_value, result.ci)
        )
        delta = None if result is results[0] else score - first
        yield Score(score=score, signature=signature, delta=delta, p_value=p_value, ci=ci)


def sign_test(baseline: np.ndarray, system: np.ndarray) -> SignTest:
    """Test whether a system's sentences are as often better than the baseline's as worse.

    This is the test of Collins, Koehn and Kucerova (2005), which Dou et al. (2019) use. BLEU does
    not score single sentences. Following Collins et al., sentence i is better if the *corpus* BLEU
    of the baseline rises when its translation i alone is replaced by the system's, worse if it
    falls, and a tie if it does not change. Under the null hypothesis ``better`` is binomial with
    p = 1/2 among the sentences that are not ties.

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
    return SignTest(better=better, worse=worse, ties=ties, p_value=two_sided(better, worse))


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

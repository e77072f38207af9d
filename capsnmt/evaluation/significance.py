"""Scores and tests against the baseline: sacreBLEU's, with a seed given, and the sign test."""

from __future__ import annotations

import math
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple
from unittest import mock

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.metrics import bleu_of
from capsnmt.evaluation.outputs import Output, Systems
from capsnmt.evaluation.scores import BOOTSTRAP, RANDOMIZATION, SEED, Score, SignTest, Test

TYPES = {BOOTSTRAP: "bs", RANDOMIZATION: "ar"}  # sacreBLEU's names
FEW = 10  # differing sentences: one sample in 2^9 exchanges all or none of them


def paired_outputs(systems: Systems, test: Optional[Test]) -> List[List[Output]]:
    """Return each output of the baseline, with the outputs that are tested against it.

    Without a test, each output is alone. Where the baseline, which is the first system, has an
    output for each seed, each seed is a test of its own.
    """
    outputs = list(systems.values())
    if test is None:
        return [[output] for found in outputs for output in found]
    if len(outputs[0]) == 1:
        return [[output for found in outputs for output in found]]
    for name, found in systems.items():
        if len(found) != len(outputs[0]):
            raise ConfigurationError(
                f"{name} has {len(found)} outputs, but the baseline {test.baseline} has "
                f"{len(outputs[0])}; give one of the baseline, or one for each seed"
            )
    return [list(seed) for seed in zip(*outputs)]


def score_outputs(
    outputs: Sequence[Tuple[str, Sequence[Any]]],
    metrics: Mapping[str, Metric],
    test: Optional[Test],
) -> List[Dict[str, Score]]:
    """Score outputs and test each against the first. All tests share the random numbers.

    With d the difference on the test set and d_b that of sample b of B:

    - Paired bootstrap resampling (Koehn 2004): sample b draws segments with replacement, and scores
      both systems on them. p = (#{b: abs(d_b) - mean(abs(d_b)) > abs(d)} + 1) / (B + 1).
    - Paired approximate randomization (Riezler and Maxwell 2005): sample b exchanges the two
      systems' translations of each segment with probability 1/2.
      p = (#{b: abs(d_b) > abs(d)} + 1) / (B + 1). There is no confidence interval.

    **D**: p = 1 where both scores are equal. Both tests count larger differences only, and if no
    sample differs either, they would find 1 / (B + 1).

    ``outputs`` are names with what the metrics score of each segment, the baseline first; ``test``
    is ``None`` for one output. The metrics have their references cached. The scores are by metric,
    in the order of the outputs.
    """
    # sacreBLEU scores the first output before it tests, and draws no samples of it for "ar"
    method, samples, seed = (
        ("ar", 1, SEED) if test is None else (TYPES[test.method], test.samples, test.seed)
    )
    with mock.patch.dict(os.environ, {"SACREBLEU_SEED": str(seed)}):
        names, results = PairedTest(
            list(outputs), metrics, references=None, test_type=method, n_samples=samples
        )()
    first, segments = outputs[0]
    untested = set()
    for number, (name, own) in enumerate(outputs[1:], start=1):
        differing = sum(ours != theirs for ours, theirs in zip(own, segments))
        if differing < FEW:
            # sacreBLEU counts samples that differ more than the systems; here many differ as much
            say(f"warning: {name} and {first} differ in {differing} sentences: too few for a test")
            untested.add(number)
    scores: List[Dict[str, Score]] = [{} for _ in outputs]
    # sacreBLEU returns the metrics under names of its own, in the order they were given
    for key, name in zip(metrics, names):
        signature, baseline = metrics[key].get_signature().format(), float(results[name][0].score)
        for number, (of_output, found) in enumerate(zip(scores, results[name])):
            score = float(found.score)  # its numbers are numpy scalars
            p_value = None if found.p_value is None else float(found.p_value)
            if number in untested:
                p_value = None
            elif number and score == baseline:
                p_value = 1.0
            of_output[key] = Score(
                score=score,
                signature=signature,
                delta=score - baseline if number else None,
                p_value=p_value,
                ci=None if found.ci is None else float(found.ci),
            )
    return scores


def sign_test(bleu: Metric, baseline: np.ndarray, system: np.ndarray) -> SignTest:
    """Test whether a system's sentences are as often better than the baseline's as worse.

    This is the test of Collins, Koehn and Kucerova (2005), which Dou et al. (2019) use. BLEU does
    not score single sentences. Following Collins et al., sentence i is better if the *corpus* BLEU
    of the baseline rises when its translation i alone is replaced by the system's, worse if it
    falls, and a tie if it does not change. Under the null hypothesis ``better`` is binomial with
    p = 1/2 among the sentences that are not ties.

    **D**: ties count for neither side, as in the plain sign test (sharing them out would be more
    conservative); the test is two-sided.

    ``baseline`` and ``system`` are the ``[segments, 10]`` of
    :func:`~capsnmt.evaluation.metrics.bleu_statistics`.
    """
    total = baseline.sum(0)
    before = bleu_of(bleu, total)
    changed = np.flatnonzero((baseline != system).any(1))
    after = np.array([bleu_of(bleu, total - baseline[i] + system[i]) for i in changed])
    better, worse = int((after > before).sum()), int((after < before).sum())
    ties = len(baseline) - better - worse
    return SignTest(better=better, worse=worse, ties=ties, p_value=two_sided(better, worse))


def two_sided(better: int, worse: int) -> float:
    """Return P(X <= min(better, worse)) + P(X >= max(better, worse)), X binomial with p = 1/2.

    >>> two_sided(6, 0), two_sided(3, 3), two_sided(0, 0)
    (0.03125, 1.0, 1.0)
    """
    decided = better + worse
    tail = sum(math.comb(decided, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**decided)

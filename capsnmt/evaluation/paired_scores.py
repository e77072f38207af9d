"""The scores of all outputs, each tested against the baseline's output of its seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence

from capsnmt.evaluation.outputs import Output, SystemOutputs, outputs_of
from capsnmt.evaluation.references import baseline_output, warn
from capsnmt.evaluation.scores import Score
from capsnmt.evaluation.scoring import score_system
from capsnmt.evaluation.settings import Significance
from capsnmt.evaluation.significance import paired_test


def score_outputs(
    systems: Sequence[SystemOutputs],
    segments: Mapping[str, Sequence[Any]],
    metrics: Dict[str, Any],
    significance: Optional[Significance],
    of: str = "",
) -> Dict[str, Dict[str, Score]]:
    """Score all outputs and test each against the baseline.

    All outputs that are tested against one output of the baseline share the random numbers. Where
    the baseline has an output for each seed, each seed is a test of its own.

    Args:
        systems: all systems, the baseline first.
        segments: label of each output -> what the metrics score of each segment.
        metrics: name -> metric.
        significance: the test; ``None`` for no test.
        of: how a warning begins.

    Returns:
        Label of each output -> name of each metric -> score.
    """
    if significance is None:
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
        tested = paired_test(
            [(each.label, segments[each.label]) for each in group], metrics, significance
        )
        baseline_scores, *others_scores = tested
        scores[first.label] = baseline_scores
        for output, own in zip(against, others_scores):
            scores[output.label] = {
                metric: replace(score, delta=score.score - baseline_scores[metric].score)
                for metric, score in own.items()
            }
        for output in against:
            if segments[output.label] == segments[first.label]:
                # sacreBLEU counts no sample as a greater difference than none at all
                equal = f"{output.label} equals {first.label} in every sentence"
                warn(f"{of}{equal}: ignore its p-value")
    return scores

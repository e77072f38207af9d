"""From the files of some systems to their scores."""

from __future__ import annotations

import platform
from typing import Dict, Optional

import capsnmt
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.compare_mt import write_report
from capsnmt.evaluation.metrics import (
    SegmentMean,
    bleu_of,
    bleu_statistics,
    buckets_of,
    build_metrics,
)
from capsnmt.evaluation.outputs import Output, read_system
from capsnmt.evaluation.scores import Evaluation, OutputScores, SystemScores
from capsnmt.evaluation.segment_scores import read_segment_scores
from capsnmt.evaluation.settings import Settings
from capsnmt.evaluation.significance import paired_outputs, score_outputs, sign_test
from capsnmt.evaluation.test_set import read_test_set, warn
from capsnmt.evaluation.text import moses_limits
from capsnmt.evaluation.tokenised_bleu import tokenise, tokenised_scores
from capsnmt.files import installed_version


def evaluate(settings: Settings) -> Evaluation:
    """Read, score and test some systems.

    Raises:
        ConfigurationError: a file cannot be read, or the files do not fit together.
    """
    systems = [read_system(files, settings.text) for files in settings.systems]
    outputs = [output for system in systems for output in system.outputs]
    test_set = read_test_set(
        outputs, settings.reference, settings.source, settings.tokenized_reference
    )
    segments = len(test_set.reference)
    limits = moses_limits(test_set.target_lang) if settings.text.detokenize == "moses" else None
    if limits:
        warn(limits)
    groups = paired_outputs(systems, settings.test)
    given = {
        metric: read_segment_scores(metric, files, systems, segments)
        for metric, files in settings.segment_scores.items()
    }
    tokenised = tokenise(test_set, outputs)
    if tokenised is None and settings.compare_mt is not None:
        raise ConfigurationError(
            "--compare-mt compares words, and this target language does not separate them by "
            "spaces: give --tokenized-reference FILE and systems with the same tokenisation"
        )
    buckets = buckets_of(test_set.source)
    metrics = build_metrics(test_set.target_lang, test_set.reference)
    bleu = metrics["bleu"]

    scored: Dict[Output, OutputScores] = {}
    for group in groups:
        texts = [(each.label, each.hypotheses) for each in group]
        scores = score_outputs(texts, metrics, settings.test)
        for each, own in zip(group, scores):
            own.update(tokenised_scores(tokenised, each, test_set.target_lang))
        for metric, values in given.items():
            named = [(f"{metric}: {each.label}", values[each]) for each in group]
            mean = {metric: SegmentMean(metric, segments)}
            for own, means in zip(scores, score_outputs(named, mean, settings.test)):
                own.update(means)
        statistics = [bleu_statistics(bleu, each.hypotheses) for each in group]
        for each, own, rows in zip(group, scores, statistics):
            scored[each] = OutputScores(
                path=each.path,
                scores=own,
                bleu_by_length={
                    name: bleu_of(bleu, rows[numbers].sum(0)) for name, numbers in buckets.items()
                },
                sign_test=None if each is group[0] else sign_test(bleu, statistics[0], rows),
            )
    if settings.compare_mt is not None and tokenised is not None:
        firsts = {system.name: tokenised.outputs[system.outputs[0]] for system in systems}
        write_report(settings.compare_mt, tokenised.reference, firsts, test_set.source)
    return Evaluation(
        reference=settings.reference,
        segments=segments,
        target_lang=test_set.target_lang,
        length_unit=test_set.length_unit if buckets else None,
        segments_by_length={name: len(numbers) for name, numbers in buckets.items()},
        test=settings.test,
        systems=[
            SystemScores(name=system.name, outputs=[scored[output] for output in system.outputs])
            for system in systems
        ],
        versions=versions(),
    )


def versions() -> Dict[str, Optional[str]]:
    """Return the versions that determine scores."""
    return {
        "capsnmt": capsnmt.__version__,  # a checkout used by path has no metadata
        "python": platform.python_version(),
        **{package: installed_version(package) for package in ("sacrebleu", "sacremoses")},
    }

"""From the files of some systems to their scores."""

from __future__ import annotations

import platform
from hashlib import sha256
from itertools import chain
from typing import Dict

import capsnmt
from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.compare_mt import write_report
from capsnmt.evaluation.metrics import (
    SegmentMean,
    bleu_of,
    bleu_statistics,
    buckets_of,
    build_metrics,
)
from capsnmt.evaluation.outputs import Output, read_systems
from capsnmt.evaluation.scores import Evaluation, OutputScores, SystemScores
from capsnmt.evaluation.segment_scores import read_segment_scores
from capsnmt.evaluation.settings import Settings
from capsnmt.evaluation.significance import paired_outputs, score_outputs, sign_test
from capsnmt.evaluation.test_set import read_test_set
from capsnmt.evaluation.text import base_language
from capsnmt.evaluation.tokenised_bleu import tokenise
from capsnmt.files import installed_version


def evaluate(settings: Settings) -> Evaluation:
    """Read, score and test some systems."""
    systems = read_systems(settings.systems, settings.text)
    outputs = [output for found in systems.values() for output in found]
    test_set = read_test_set(outputs, settings)
    segments, language = len(test_set.references[0]), test_set.target_lang
    if language is None:
        say(
            "warning: no --target-lang, and no log that names it: the rules for all languages and "
            "BLEU's 13a tokeniser are used"
        )
    test = settings.test if settings.tested else None
    groups = paired_outputs(systems, test)
    given = {
        metric: read_segment_scores(metric, files, systems, segments)
        for metric, files in settings.segment_scores.items()
    }
    tokenised = tokenise(test_set, outputs)
    if settings.compare_mt is not None and tokenised is None:
        raise ConfigurationError(
            "--compare-mt needs words, which this target language does not separate by spaces; "
            "give --tokenized-reference FILE and systems with the same tokenisation"
        )
    buckets = buckets_of(test_set.source)
    metrics = build_metrics(language, test_set.references, settings.metrics)
    if "chrf++" in {*settings.metrics} - {*metrics}:
        say(f"note: chrF2++ is left out: it counts words, which {language} does not separate")
    bleu = metrics["bleu"]

    scored: Dict[Output, OutputScores] = {}
    for group in groups:
        scores = score_outputs([(each.label, each.hypotheses) for each in group], metrics, test)
        if tokenised is not None:
            for each, own in zip(group, scores):
                own.update(tokenised.scores(each, base_language(language) == "de"))
        for metric, values in given.items():
            named = [(f"{metric}: {each.label}", values[each]) for each in group]
            means = score_outputs(named, {metric: SegmentMean(metric, segments)}, test)
            for own, mean in zip(scores, means):
                own.update(mean)
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
        firsts = {name: tokenised.outputs[found[0]] for name, found in systems.items()}
        reference, *others = tokenised.references
        if others:
            say("note: compare-mt's report is of the first reference; it takes one")
        write_report(settings.compare_mt, settings.test, reference, firsts, test_set.source)
    return Evaluation(
        reference=settings.references[0],
        references=test_set.names if len(test_set.names) > 1 else [],
        checksums={
            name: sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
            for name, lines in (
                ("reference", [*chain(*test_set.references)]),
                ("source", test_set.source),
            )
            if lines is not None
        },
        segments=segments,
        target_lang=language,
        length_unit=test_set.length_unit if buckets else None,
        segments_by_length={name: len(numbers) for name, numbers in buckets.items()},
        test=test,
        systems=[
            SystemScores(name=name, outputs=[scored[output] for output in found])
            for name, found in systems.items()
        ],
        versions={
            "capsnmt": capsnmt.__version__,  # a checkout used by path has no metadata
            "python": platform.python_version(),
            **{package: installed_version(package) for package in ("sacrebleu", "sacremoses")},
        },
    )

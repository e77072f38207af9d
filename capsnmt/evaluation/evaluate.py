"""From the command line's files to their scores."""

from __future__ import annotations

import argparse
from typing import Any, Dict, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation import compare_mt
from capsnmt.evaluation.inputs import (
    baseline_output,
    check_pairs,
    note,
    reference_of,
    source_of,
)
from capsnmt.evaluation.lengths import bleu_by_length, bucket_of, counts
from capsnmt.evaluation.results import Evaluation, OutputResult, SystemResult
from capsnmt.evaluation.scoring import Score, build_metrics, score_system
from capsnmt.evaluation.sign_test import sign_test
from capsnmt.evaluation.significance import paired_bootstrap
from capsnmt.evaluation.statistics import bleu_statistics
from capsnmt.evaluation.systems import Output, System, TextSettings, outputs_of, read_systems
from capsnmt.evaluation.text import moses_limits
from capsnmt.evaluation.tokenized import tokenized_scores, tokens_of

RESAMPLES, SEED = 1000, 12345
AllScores = Dict[str, Dict[str, Score]]


def evaluate(
    arguments: Sequence[str], settings: TextSettings, args: argparse.Namespace
) -> Evaluation:
    """Read, score and test what the command line names.

    Args:
        arguments: the systems, the baseline first.
        settings: how their files become text.
        args: the other flags.

    Raises:
        ConfigurationError: one line, for everything a user can get wrong.
    """
    systems = read_systems(arguments, settings)
    outputs = outputs_of(systems)
    target_lang = next((each.target_lang for each in outputs if each.target_lang), None)
    limits = moses_limits(target_lang) if settings.detokenize == "moses" else None
    if limits:
        note(limits)
    name, reference = reference_of(outputs, args.reference)
    if args.baseline is not None:
        check_pairs(systems)
    length_unit, source = source_of(outputs, args.source, len(reference))
    tokens = tokens_of(outputs, reference, target_lang, args.tokenized_reference)
    if tokens is None and args.compare_mt is not None:
        raise ConfigurationError(
            "--compare-mt compares words, which no spaces part in this target language: give "
            "--tokenized-reference FILE, and systems tokenised alike"
        )
    resamples, seed = args.resamples or RESAMPLES, args.seed or SEED

    metrics = build_metrics(target_lang, reference)
    if args.baseline is None:
        scores = {each.label: score_system(metrics, each.hypotheses) for each in outputs}
    else:
        scores = tested_scores(systems, metrics, resamples, seed)
    statistics = {
        each.label: bleu_statistics(target_lang, each.hypotheses, reference) for each in outputs
    }
    buckets = None if source is None else bucket_of(source)
    baseline = systems[0] if args.baseline is not None else None

    def result(system: System, number: int, output: Output) -> OutputResult:
        """Everything about one output."""
        mine, test = statistics[output.label], None
        if baseline is not None and system is not baseline:
            test = sign_test(statistics[baseline_output(baseline, number).label], mine)
        return OutputResult(
            path=output.path,
            scores=scores[output.label],
            tokenized=tokenized_scores(tokens, output.label, target_lang),
            by_length=None if buckets is None else bleu_by_length(mine, buckets),
            sign_test=test,
        )

    results = [
        SystemResult(
            system.name,
            [result(system, number, output) for number, output in enumerate(system.outputs)],
        )
        for system in systems
    ]
    if tokens is not None and args.compare_mt is not None:
        firsts = [(system.name, tokens.lines[system.outputs[0].label]) for system in systems]
        compare_mt.write_report(args.compare_mt, tokens.reference, firsts, source, resamples, seed)
    return Evaluation(
        reference=name,
        raw_reference=args.reference is not None,
        segments=len(reference),
        systems=results,
        target_lang=target_lang,
        lengths=None if buckets is None else counts(buckets),
        length_unit=length_unit,
        baseline=None if baseline is None else baseline.name,
        resamples=resamples,
        seed=seed,
        compare_mt=args.compare_mt,
    )


def tested_scores(
    systems: Sequence[System], metrics: Dict[str, Any], resamples: int, seed: int
) -> AllScores:
    """Scores of all outputs, by label, each tested against the baseline's output of its seed.

    Against one output of the baseline all others are tested on the same draws of segments; where
    the baseline has one for each seed, each seed is a test of its own.
    """
    baseline, *others = systems
    scores: AllScores = {}
    for first in baseline.outputs:
        against = [
            output
            for system in others
            for position, output in enumerate(system.outputs)
            if baseline_output(baseline, position) is first
        ]
        group = [first, *against]
        tested = paired_bootstrap(
            [(each.label, each.hypotheses) for each in group], metrics, resamples, seed
        )
        scores.update(zip((each.label for each in group), tested))
        for output in against:
            if output.hypotheses == first.hypotheses:
                # sacreBLEU counts no resample as a greater difference than none at all
                note(f"{output.label} is {first.label}, sentence by sentence: no p-value holds")
    return scores

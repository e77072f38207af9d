"""From the files of some systems to their scores."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Dict, Optional

import capsnmt
from capsnmt import records
from capsnmt.cli import ConfigurationError, check_output_file
from capsnmt.evaluation import compare_mt
from capsnmt.evaluation.bleu_statistics import bleu_statistics
from capsnmt.evaluation.lengths import bleu_by_length, bucket_of, segments_by_length
from capsnmt.evaluation.outputs import Output, SystemOutputs, outputs_of, read_systems
from capsnmt.evaluation.references import (
    baseline_output,
    check_pairs,
    common_language,
    reference_of,
    source_of,
    warn,
)
from capsnmt.evaluation.scores import Evaluation, OutputScores, SystemScores
from capsnmt.evaluation.scoring import build_metrics
from capsnmt.evaluation.segment_scores import SegmentMean, read_segment_scores
from capsnmt.evaluation.settings import Settings
from capsnmt.evaluation.significance import score_outputs, sign_test
from capsnmt.evaluation.text import moses_limits
from capsnmt.evaluation.tokenized import tokenized_scores, tokens_of
from capsnmt.files import installed_version


def evaluate(settings: Settings) -> Evaluation:
    """Read, score and test some systems.

    Raises:
        ConfigurationError: a file cannot be read, or the files do not fit together.
    """
    read = read_systems(settings.systems, settings.text)
    outputs = outputs_of(read)
    target_lang = common_language(outputs)
    limits = moses_limits(target_lang) if settings.text.detokenize == "moses" else None
    if limits:
        warn(limits)
    reference = reference_of(outputs, settings.reference)
    test = settings.test
    if test is not None:
        check_pairs(read)
    unit, source = source_of(outputs, settings.source, len(reference))
    tokens = tokens_of(outputs, reference, target_lang, settings.tokenized_reference)
    if tokens is None and settings.compare_mt is not None:
        raise ConfigurationError(
            "--compare-mt compares words, and this target language does not separate them by "
            "spaces: give --tokenized-reference FILE and systems with the same tokenisation"
        )

    by_segment = [
        read_segment_scores(metric, files, read, len(reference))
        for metric, files in settings.segment_scores.items()
    ]
    hypotheses = {each.label: each.hypotheses for each in outputs}
    scores = score_outputs(read, hypotheses, build_metrics(target_lang, reference), test)
    for output in outputs:
        scores[output.label].update(tokenized_scores(tokens, output.label, target_lang))
    for each in by_segment:
        metric = {each.metric: SegmentMean(each.metric, each.signature)}
        means = score_outputs(read, each.values, metric, test, f"{each.metric}: ")
        for label, mean in means.items():
            scores[label].update(mean)
    statistics = {
        each.label: bleu_statistics(target_lang, each.hypotheses, reference) for each in outputs
    }
    buckets = None if source is None else bucket_of(source)

    def score_output(system: SystemOutputs, number: int, output: Output) -> OutputScores:
        own, sign = statistics[output.label], None
        if test is not None and system is not read[0]:
            sign = sign_test(statistics[baseline_output(read[0], number).label], own)
        return OutputScores(
            path=output.path,
            scores=scores[output.label],
            bleu_by_length={} if buckets is None else bleu_by_length(own, buckets),
            sign_test=sign,
        )

    if tokens is not None and settings.compare_mt is not None:
        firsts = [(system.name, tokens.lines[system.outputs[0].label]) for system in read]
        compare_mt.write_report(settings.compare_mt, tokens.reference, firsts, source)
    return Evaluation(
        reference=settings.reference,
        segments=len(reference),
        target_lang=target_lang,
        length_unit=None if buckets is None else unit,
        segments_by_length={} if buckets is None else segments_by_length(buckets),
        test=test,
        systems=[
            SystemScores(
                name=system.name,
                outputs=[
                    score_output(system, number, output)
                    for number, output in enumerate(system.outputs)
                ],
            )
            for system in read
        ],
        versions=versions(),
    )


def versions() -> Dict[str, Optional[str]]:
    """Return the versions that determine scores; ``None`` for a package that is not installed."""
    return {
        "capsnmt": capsnmt.__version__,  # a checkout used by path has no metadata
        "python": platform.python_version(),
        **{package: installed_version(package) for package in ("sacrebleu", "sacremoses")},
    }


def check_json_target(path: Path) -> None:
    """Raise if a file exists that is not a document of this command.

    ``--json SYSTEM`` would otherwise replace the output of a system by its score.

    Raises:
        ConfigurationError: the file is something else.
    """
    check_output_file(path, "--json")
    if not path.exists():
        return
    try:
        ours = "systems" in records.load(path)
    except (ConfigurationError, OSError, TypeError):
        ours = False
    if not ours:
        raise ConfigurationError(
            f"--json {path} exists and is not a report of this command: name another file, or put "
            "a bare --json last"
        )

"""From the files of some systems to their scores."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import capsnmt
from capsnmt import records
from capsnmt.cli import ConfigurationError, check_output_file
from capsnmt.evaluation import compare_mt
from capsnmt.evaluation.bleu_statistics import bleu_statistics
from capsnmt.evaluation.lengths import BUCKETS, bleu_by_length, bucket_of, counts
from capsnmt.evaluation.metrics import COMPARABLE
from capsnmt.evaluation.outputs import Output, SystemOutputs, outputs_of, read_systems
from capsnmt.evaluation.references import (
    baseline_output,
    check_pairs,
    common_language,
    reference_of,
    source_of,
    warn,
)
from capsnmt.evaluation.scores import (
    Difference,
    Evaluation,
    OutputScores,
    Reference,
    Score,
    SourceLengths,
    SystemScores,
    Value,
)
from capsnmt.evaluation.scoring import build_metrics
from capsnmt.evaluation.seeds import mean_by_length, spread
from capsnmt.evaluation.segment_scores import SegmentMean, read_segment_scores
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION, Settings, Significance
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
    name, reference = reference_of(outputs, settings.reference)
    significance = settings.significance
    baseline = None if significance is None else read[0]
    if baseline is not None:
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
    metrics = build_metrics(target_lang, reference)
    scores = score_outputs(read, hypotheses, metrics, significance)
    means: Dict[str, Dict[str, Score]] = {each.label: {} for each in outputs}
    for each in by_segment:
        metric = {each.metric: SegmentMean(each.metric, each.signature)}
        found = score_outputs(read, each.values, metric, significance, f"{each.metric}: ")
        for label, mean in found.items():
            means[label].update(mean)
    statistics = {
        each.label: bleu_statistics(target_lang, each.hypotheses, reference) for each in outputs
    }
    buckets = None if source is None else bucket_of(source)

    def score_output(system: SystemOutputs, number: int, output: Output) -> OutputScores:
        own, primary = statistics[output.label], scores[output.label]
        tests: Dict[str, Any] = {}
        if baseline is not None:
            tested = {**primary, **means[output.label]}
            tests["significance"] = {key: _difference(score) for key, score in tested.items()}
            tests["sign_test"] = None
            if system is not baseline:
                against = baseline_output(baseline, number).label
                tests["sign_test"] = sign_test(statistics[against], own)
        return OutputScores(
            path=output.path,
            bleu=_value(primary["bleu"]),
            chrf=_value(primary["chrf"]),
            chrf_with_words=_value(primary["chrf++"]),
            ter=_value(primary["ter"]),
            tokenized=_values(tokenized_scores(tokens, output.label, target_lang)),
            segment_means=_values(means[output.label]),
            by_length=None if buckets is None else bleu_by_length(own, buckets),
            **tests,
        )

    scored = [
        system_scores(
            system.name,
            [score_output(system, number, output) for number, output in enumerate(system.outputs)],
        )
        for system in read
    ]
    if tokens is not None and settings.compare_mt is not None:
        firsts = [(system.name, tokens.lines[system.outputs[0].label]) for system in read]
        compare_mt.write_report(settings.compare_mt, tokens.reference, firsts, source)
    return Evaluation(
        reference=Reference(name, settings.reference is not None, len(reference)),
        target_lang=target_lang,
        systems=scored,
        tokenized=COMPARABLE,
        lengths=None if buckets is None else SourceLengths(unit, BUCKETS, counts(buckets)),
        baseline=None if baseline is None else baseline.name,
        test=None if significance is None else significance.method,
        resamples=_samples(significance, BOOTSTRAP),
        trials=_samples(significance, RANDOMIZATION),
        seed=None if significance is None else significance.seed,
        versions=versions(),
    )


def _samples(significance: Optional[Significance], method: str) -> Optional[int]:
    if significance is None or significance.method != method:
        return None
    return significance.samples


def _value(score: Score) -> Value:
    return Value(score=score.score, signature=score.signature)


def _values(scores: Mapping[str, Score]) -> Dict[str, Value]:
    return {key: _value(score) for key, score in scores.items()}


def _difference(score: Score) -> Difference:
    return Difference(p_value=score.p_value, mean=score.mean, ci=score.ci, delta=score.delta)


def system_scores(name: str, outputs: List[OutputScores]) -> SystemScores:
    """Return the scores of a system, which are means if it has several outputs."""
    first, *others = outputs
    if not others:
        fields = {key: getattr(first, key) for key in first.__struct_fields__}
        return SystemScores(name=name, **fields)

    def mean(metric: str) -> Value:
        found = spread([output.score(metric).score for output in outputs])
        signature = first.score(metric).signature
        return Value(score=found.mean, std=found.std, values=[*found.values], signature=signature)

    by_length = [each.by_length for each in outputs if each.by_length is not None]
    return SystemScores(
        name=name,
        bleu=mean("bleu"),
        chrf=mean("chrf"),
        chrf_with_words=mean("chrf++"),
        ter=mean("ter"),
        tokenized={kind: mean(kind) for kind in first.tokenized},
        segment_means={metric: mean(metric) for metric in first.segment_means},
        by_length=mean_by_length(by_length) if by_length else None,
        several=outputs,
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

"""The document of ``capsnmt-evaluate --json``: the only code that knows its keys."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.metrics import COMPARABLE, METRICS
from capsnmt.evaluation.scores import (
    Evaluation,
    OutputScores,
    PairedTest,
    Reference,
    Score,
    SignTest,
    SourceLengths,
    SystemScores,
)
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION, Significance

# What a test adds to a score.
TESTED = ("p_value", "mean", "ci", "delta")
# Documents of earlier versions have these metrics only.
REQUIRED = ("bleu", "chrf", "ter")


def to_json(evaluation: Evaluation) -> Dict[str, Any]:
    """Return the document as JSON values, every number in full precision.

    A system with one output is that output. A system with several holds them as ``outputs``, and
    the mean and standard deviation of each score.
    """
    test, lengths = evaluation.test, evaluation.lengths
    significance = None if test is None else test.significance
    samples = {} if significance is None else {significance.method: significance.samples}
    return {
        "reference": asdict(evaluation.reference),
        "target_lang": evaluation.target_lang,
        "systems": [_system_to_json(system, test is not None) for system in evaluation.systems],
        "tokenized": COMPARABLE,
        "lengths": None if lengths is None else _lengths_to_json(lengths),
        "baseline": None if test is None else test.baseline,
        "test": None if significance is None else significance.method,
        "resamples": samples.get(BOOTSTRAP),
        "trials": samples.get(RANDOMIZATION),
        "seed": None if significance is None else significance.seed,
        "versions": dict(evaluation.versions),
    }


def _lengths_to_json(lengths: SourceLengths) -> Dict[str, Any]:
    buckets, segments = list(lengths.buckets), list(lengths.segments)
    return {"of": lengths.unit, "buckets": buckets, "segments": segments}


def _system_to_json(system: SystemScores, tested: bool) -> Dict[str, Any]:
    if len(system.outputs) == 1:
        return {"name": system.name, **_output_to_json(system.outputs[0], tested)}
    first = system.outputs[0]

    def several(metric: str, score: Score) -> Dict[str, Any]:
        found, signature = system.spread(metric), score.signature
        values = list(found.values)
        return {"score": found.mean, "std": found.std, "values": values, "signature": signature}

    return {
        "name": system.name,
        **{metric: several(metric, score) for metric, score in first.scores.items()},
        "tokenized": {kind: several(kind, score) for kind, score in first.tokenized.items()},
        "segment_means": {
            name: several(name, score) for name, score in first.segment_means.items()
        },
        "by_length": system.by_length,
        "outputs": [_output_to_json(output, tested) for output in system.outputs],
    }


def _output_to_json(output: OutputScores, tested: bool) -> Dict[str, Any]:
    def short(score: Score) -> Dict[str, Any]:
        return {"score": score.score, "signature": score.signature}

    entry: Dict[str, Any] = {"path": output.path}
    entry.update((metric, short(score)) for metric, score in output.scores.items())
    entry["tokenized"] = {kind: short(score) for kind, score in output.tokenized.items()}
    entry["segment_means"] = {name: short(score) for name, score in output.segment_means.items()}
    entry["by_length"] = None if output.by_length is None else list(output.by_length)
    if tested:
        entry["significance"] = {
            metric: {key: getattr(score, key) for key in TESTED}
            for metric, score in {**output.scores, **output.segment_means}.items()
        }
        entry["sign_test"] = None if output.sign_test is None else asdict(output.sign_test)
    return entry


def from_json(value: Any, name: str) -> Evaluation:
    """Return the records of a document.

    Args:
        value: what :func:`to_json` returned, or an older document without chrF2++,
            ``segment_means``, ``tokenized``, ``lengths``, ``sign_test`` or ``versions``.
        name: how error messages refer to the document.

    Raises:
        ConfigurationError: the value is not a document of ``capsnmt-evaluate``.
    """
    try:
        lengths = value.get("lengths")
        return Evaluation(
            reference=Reference(**value["reference"]),
            target_lang=value.get("target_lang"),
            systems=[_system_from_json(system) for system in value["systems"]],
            lengths=None
            if lengths is None
            else SourceLengths(lengths["of"], lengths["buckets"], lengths["segments"]),
            test=_test_from_json(value),
            versions=value.get("versions") or {},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{name} is not a document of capsnmt-evaluate --json ({_reason(error)}): score the "
            "system again"
        ) from None


def _test_from_json(value: Mapping[str, Any]) -> Optional[PairedTest]:
    if value.get("baseline") is None:
        return None
    method = value.get("test", BOOTSTRAP)  # the only test of earlier versions
    samples = {BOOTSTRAP: "resamples", RANDOMIZATION: "trials"}[method]
    significance = Significance(method, int(value[samples]), int(value["seed"]))
    return PairedTest(str(value["baseline"]), significance)


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def read_evaluation(path: Path) -> Evaluation:
    """Read a file that ``capsnmt-evaluate --json FILE`` wrote.

    Raises:
        ConfigurationError: the file is missing or holds no such document.
    """
    return from_json(records.load(path), str(path))


def _system_from_json(value: Mapping[str, Any]) -> SystemScores:
    outputs = value.get("outputs", [value])
    return SystemScores(str(value["name"]), [_output_from_json(output) for output in outputs])


def _output_from_json(value: Mapping[str, Any]) -> OutputScores:
    tests = value.get("significance") or {}
    sign_test = value.get("sign_test")
    tokenized, means = value.get("tokenized") or {}, value.get("segment_means") or {}

    def score_of(metric: str, score: Mapping[str, Any]) -> Score:
        return Score(*_score_of(score), **tests.get(metric, {}))

    return OutputScores(
        path=str(value["path"]),
        scores={
            metric: score_of(metric, value[metric])
            for metric in METRICS
            if metric in REQUIRED or metric in value
        },
        tokenized={kind: Score(*_score_of(score)) for kind, score in tokenized.items()},
        segment_means={name: score_of(name, score) for name, score in means.items()},
        by_length=value.get("by_length"),
        sign_test=None if sign_test is None else SignTest(**sign_test),
    )


def _score_of(value: Mapping[str, Any]) -> Tuple[float, str]:
    return float(value["score"]), str(value["signature"])

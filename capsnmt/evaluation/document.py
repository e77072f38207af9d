"""The document of ``capsnmt-evaluate --json``: its records, and the only code that knows its keys.

A document holds one or more systems, each with one output for each seed. The scores of a system
with several outputs are means; they are computed from its outputs and never stored in a record.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.metrics import COMPARABLE, METRICS
from capsnmt.evaluation.seeds import Spread, mean_by_length, spread
from capsnmt.files import read_json


@dataclass(frozen=True)
class Score:
    """The score of an output by one metric.

    Attributes:
        score: 0..100 for BLEU and chrF; edits per 100 reference words for TER (lower is better).
        signature: sacreBLEU's signature.
        p_value: probability, under the null hypothesis, of a difference to the baseline at least
            this large; ``None`` for the baseline and where nothing was tested.
        mean: mean over the bootstrap resamples; ``None`` where nothing was tested.
        ci: half the width of the 95% confidence interval; ``None`` where nothing was tested.
    """

    score: float
    signature: str
    p_value: Optional[float] = None
    mean: Optional[float] = None
    ci: Optional[float] = None


@dataclass(frozen=True)
class SignTest:
    """How many sentences a system translates better and worse than the baseline.

    Attributes:
        better, worse, ties: numbers of sentences; they sum to the test set.
        p_value: two-sided; 1 where every sentence is a tie.
    """

    better: int
    worse: int
    ties: int
    p_value: float


@dataclass(frozen=True)
class OutputScores:
    """The scores of one output.

    Attributes:
        path: the file of the output.
        scores: key of ``METRICS`` -> score.
        tokenized: key of ``COMPARABLE`` -> tokenised BLEU; empty where the target language does
            not separate words by spaces.
        by_length: BLEU of each bucket of source lengths; ``None`` without a source.
        sign_test: test against the baseline; ``None`` for the baseline and where nothing was
            tested.
    """

    path: str
    scores: Mapping[str, Score]
    tokenized: Mapping[str, Score] = field(default_factory=dict)
    by_length: Optional[Sequence[Optional[float]]] = None
    sign_test: Optional[SignTest] = None

    def score(self, metric: str) -> Score:
        """Return the score by a key of ``METRICS`` or ``COMPARABLE``."""
        return self.scores[metric] if metric in self.scores else self.tokenized[metric]


@dataclass(frozen=True)
class SystemScores:
    """The scores of a system, one output for each seed."""

    name: str
    outputs: Sequence[OutputScores]

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of a score over the outputs."""
        return spread([output.score(metric).score for output in self.outputs])

    @property
    def by_length(self) -> Optional[List[Optional[float]]]:
        """BLEU by source length, averaged over the outputs."""
        found = [each.by_length for each in self.outputs if each.by_length is not None]
        return mean_by_length(found) if found else None


@dataclass(frozen=True)
class Reference:
    """The reference of a test set.

    Attributes:
        source: the file, or a description of the ``T-`` lines that serve as the reference.
        raw: whether it is raw text, as opposed to detokenised ``T-`` lines.
        segments: number of sentences.
    """

    source: str
    raw: bool
    segments: int


@dataclass(frozen=True)
class SourceLengths:
    """The buckets of source lengths.

    Attributes:
        unit: what a length counts.
        buckets: name of each bucket.
        segments: number of sentences in each bucket.
    """

    unit: str
    buckets: Sequence[str]
    segments: Sequence[int]


@dataclass(frozen=True)
class PairedTest:
    """The paired bootstrap test of all systems against the first.

    Attributes:
        baseline: name of the first system.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
    """

    baseline: str
    resamples: int
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """The scores of some systems on one test set.

    Attributes:
        reference: what the systems were scored against.
        target_lang: language code; ``None`` if unknown.
        systems: the systems; the baseline comes first.
        lengths: the buckets of ``by_length``; ``None`` without a source.
        test: the test of significance; ``None`` where nothing was tested.
        versions: package -> version, of the packages that determine scores.
    """

    reference: Reference
    target_lang: Optional[str]
    systems: Sequence[SystemScores]
    lengths: Optional[SourceLengths] = None
    test: Optional[PairedTest] = None
    versions: Mapping[str, Optional[str]] = field(default_factory=dict)

    def system(self, name: str) -> SystemScores:
        """Return the scores of a system.

        Raises:
            KeyError: no system has this name.
        """
        return {system.name: system for system in self.systems}[name]


def to_json(evaluation: Evaluation) -> Dict[str, Any]:
    """Return the document as JSON values, every number in full precision.

    A system with one output is that output. A system with several holds them as ``outputs``, and
    the mean and standard deviation of each score.
    """
    test, lengths = evaluation.test, evaluation.lengths
    return {
        "reference": asdict(evaluation.reference),
        "target_lang": evaluation.target_lang,
        "systems": [_system_to_json(system, test is not None) for system in evaluation.systems],
        "tokenized": COMPARABLE,
        "lengths": None if lengths is None else _lengths_to_json(lengths),
        "baseline": None if test is None else test.baseline,
        "resamples": None if test is None else test.resamples,
        "seed": None if test is None else test.seed,
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
        "by_length": system.by_length,
        "outputs": [_output_to_json(output, tested) for output in system.outputs],
    }


def _output_to_json(output: OutputScores, tested: bool) -> Dict[str, Any]:
    def short(score: Score) -> Dict[str, Any]:
        return {"score": score.score, "signature": score.signature}

    entry: Dict[str, Any] = {"path": output.path}
    entry.update((metric, short(score)) for metric, score in output.scores.items())
    entry["tokenized"] = {kind: short(score) for kind, score in output.tokenized.items()}
    entry["by_length"] = None if output.by_length is None else list(output.by_length)
    if tested:
        entry["significance"] = {
            metric: {"p_value": score.p_value, "mean": score.mean, "ci": score.ci}
            for metric, score in output.scores.items()
        }
        entry["sign_test"] = None if output.sign_test is None else asdict(output.sign_test)
    return entry


def from_json(value: Any, name: str) -> Evaluation:
    """Return the records of a document.

    Args:
        value: what :func:`to_json` returned, or an older document without ``tokenized``,
            ``lengths``, ``sign_test`` or ``versions``.
        name: how error messages refer to the document.

    Raises:
        ConfigurationError: the value is not a document of ``capsnmt-evaluate``.
    """
    try:
        lengths = value.get("lengths")
        baseline = value.get("baseline")
        return Evaluation(
            reference=Reference(**value["reference"]),
            target_lang=value.get("target_lang"),
            systems=[_system_from_json(system) for system in value["systems"]],
            lengths=None
            if lengths is None
            else SourceLengths(lengths["of"], lengths["buckets"], lengths["segments"]),
            test=None
            if baseline is None
            else PairedTest(baseline, int(value["resamples"]), int(value["seed"])),
            versions=value.get("versions") or {},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{name} is not a document of capsnmt-evaluate --json ({_reason(error)}): score the "
            "system again"
        ) from None


def _reason(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


def read_evaluation(path: Path) -> Evaluation:
    """Read a file that ``capsnmt-evaluate --json FILE`` wrote.

    Raises:
        ConfigurationError: the file is missing or holds no such document.
    """
    return from_json(read_json(path), str(path))


def _system_from_json(value: Mapping[str, Any]) -> SystemScores:
    outputs = value.get("outputs", [value])
    return SystemScores(str(value["name"]), [_output_from_json(output) for output in outputs])


def _output_from_json(value: Mapping[str, Any]) -> OutputScores:
    tests = value.get("significance") or {}
    sign_test = value.get("sign_test")
    tokenized = value.get("tokenized") or {}
    return OutputScores(
        path=str(value["path"]),
        scores={
            metric: Score(*_score_of(value[metric]), **tests.get(metric, {})) for metric in METRICS
        },
        tokenized={kind: Score(*_score_of(score)) for kind, score in tokenized.items()},
        by_length=value.get("by_length"),
        sign_test=None if sign_test is None else SignTest(**sign_test),
    )


def _score_of(value: Mapping[str, Any]) -> Tuple[float, str]:
    return float(value["score"]), str(value["signature"])

"""The scores of some systems on a test set: the record that ``capsnmt-evaluate --json`` writes.

A system with one output *is* that output in the JSON. A system with one for each seed holds them as
``outputs``; its own scores are their means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple, Union

import msgspec
from msgspec import UNSET, UnsetType

from capsnmt.evaluation.metrics import METRICS
from capsnmt.evaluation.seeds import Spread, spread
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION
from capsnmt.records import Record

DESCRIPTIONS = {
    BOOTSTRAP: "paired bootstrap resampling (Koehn 2004), {:,} resamples",
    RANDOMIZATION: "paired approximate randomization (Riezler and Maxwell 2005), {:,} trials",
}


@dataclass(frozen=True)
class Score:
    """The score of an output by one metric.

    Attributes:
        score: 0..100 for BLEU and chrF; edits per 100 reference words for TER (lower is better);
            for a metric of segments the mean.
        signature: sacreBLEU's signature, or one in its form.
        p_value: probability, under the null hypothesis, of a difference to the baseline at least
            this large; ``None`` for the baseline and where nothing was tested.
        mean: mean over the bootstrap resamples; ``None`` without a bootstrap.
        ci: half the width of the 95% confidence interval; ``None`` without a bootstrap.
        delta: difference to the baseline; ``None`` for the baseline and where nothing was tested.
    """

    score: float
    signature: str
    p_value: Optional[float] = None
    mean: Optional[float] = None
    ci: Optional[float] = None
    delta: Optional[float] = None


class Value(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What is recorded of a score: of several outputs the mean, with ``std`` (n - 1)."""

    score: float
    signature: str
    std: Optional[float] = None
    values: Optional[List[float]] = None


class Difference(Record, frozen=True, kw_only=True):
    """How a score compares with the baseline's, as in :class:`Score`; of the baseline, nulls."""

    p_value: Optional[float] = None
    mean: Optional[float] = None
    ci: Optional[float] = None
    delta: Optional[float] = None


class SignTest(Record, frozen=True):
    """How many sentences a system translates better and worse than the baseline.

    Attributes:
        better, worse, ties: numbers of sentences; they sum to the test set.
        p_value: two-sided; 1 where every sentence is a tie.
    """

    better: int
    worse: int
    ties: int
    p_value: float


class OutputScores(Record, frozen=True, kw_only=True):
    """The scores of one output.

    Attributes:
        path: the file of the output.
        tokenized: key of ``COMPARABLE`` -> tokenised BLEU; empty where the target language does
            not separate words by spaces.
        segment_means: name of a metric of segments -> the mean of their scores.
        by_length: BLEU of each bucket of source lengths; ``None`` without a source.
        significance: metric -> test against the baseline; absent where nothing was tested.
        sign_test: ``None`` for the baseline; absent where nothing was tested.
    """

    path: Union[str, UnsetType] = UNSET
    bleu: Value
    chrf: Value
    chrf_with_words: Value = msgspec.field(name="chrf++")
    ter: Value
    tokenized: Dict[str, Value]
    segment_means: Dict[str, Value]
    by_length: Optional[List[Optional[float]]]
    significance: Union[Dict[str, Difference], UnsetType] = UNSET
    sign_test: Union[SignTest, UnsetType, None] = UNSET

    @property
    def primary(self) -> Dict[str, Value]:
        """The scores by a key of ``METRICS``."""
        return dict(zip(METRICS, (self.bleu, self.chrf, self.chrf_with_words, self.ter)))

    def score(self, metric: str) -> Value:
        """Return a score by a key of ``METRICS``, ``tokenized`` or ``segment_means``.

        Raises:
            KeyError: this output has no such score.
        """
        return {**self.primary, **self.tokenized, **self.segment_means}[metric]

    def difference(self, metric: str) -> Difference:
        """Return how a score compares with the baseline's, all ``None`` if nothing was tested."""
        tests = {} if self.significance is UNSET else self.significance
        return tests.get(metric, Difference())


def common_metrics(outputs: Sequence[OutputScores]) -> Dict[str, str]:
    """Return key and name of the metrics of all outputs; those of segments come last."""
    means = [
        name
        for name in outputs[0].segment_means
        if all(name in each.segment_means for each in outputs)
    ]
    return {**METRICS, **dict(zip(means, means))}


class SystemScores(OutputScores, frozen=True, kw_only=True):
    """The scores of a system: of its output, or means over its outputs, one for each seed."""

    name: str
    several: Union[List[OutputScores], UnsetType] = msgspec.field(name="outputs", default=UNSET)

    @property
    def outputs(self) -> Sequence[OutputScores]:
        """The scores of each output."""
        return [self] if self.several is UNSET else self.several

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of a score over the outputs."""
        return spread([output.score(metric).score for output in self.outputs])

    def mean_delta(self, metric: str) -> Optional[float]:
        """Mean difference to the baseline; ``None`` unless all outputs were tested."""
        deltas = [output.difference(metric).delta for output in self.outputs]
        found = [delta for delta in deltas if delta is not None]
        return spread(found).mean if found and len(found) == len(deltas) else None


class Reference(Record, frozen=True):
    """The reference of a test set.

    Attributes:
        source: the file, or a description of the ``T-`` lines that serve as the reference.
        raw: whether it is raw text, as opposed to detokenised ``T-`` lines.
        segments: number of sentences.
    """

    source: str
    raw: bool
    segments: int


class SourceLengths(Record, frozen=True):
    """The buckets of source lengths.

    Attributes:
        unit: what a length counts.
        buckets: name of each bucket.
        segments: number of sentences in each bucket.
    """

    unit: str = msgspec.field(name="of")
    buckets: Tuple[str, ...]
    segments: Tuple[int, ...]


class Evaluation(Record, frozen=True, kw_only=True):
    """The scores of some systems on one test set.

    Attributes:
        reference: what the systems were scored against.
        target_lang: language code; ``None`` if unknown.
        systems: the systems; the baseline comes first.
        tokenized: key of each tokenised BLEU -> what it is comparable with.
        lengths: the buckets of ``by_length``; ``None`` without a source.
        baseline: name of the first system, if the others are tested against it.
        test: the test of significance, a key of ``DESCRIPTIONS``.
        resamples, trials: its number of samples, as the bootstrap and as randomization call it.
        seed: its seed.
        versions: package -> version, of the packages that determine scores.
    """

    reference: Reference
    target_lang: Optional[str]
    systems: List[SystemScores]
    tokenized: Dict[str, str]
    lengths: Optional[SourceLengths]
    baseline: Optional[str]
    test: Optional[str]
    resamples: Optional[int]
    trials: Optional[int]
    seed: Optional[int]
    versions: Dict[str, Optional[str]]

    @property
    def test_in_words(self) -> Optional[str]:
        """The test of significance, its number of samples and its seed."""
        if self.test is None:
            return None
        samples = DESCRIPTIONS[self.test].format(self.resamples or self.trials)
        return f"{samples}, seed {self.seed}"

    def system(self, name: str) -> SystemScores:
        """Return the scores of a system.

        Raises:
            KeyError: no system has this name.
        """
        return {system.name: system for system in self.systems}[name]

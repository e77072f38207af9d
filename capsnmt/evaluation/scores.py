"""The scores of some systems on a test set, as records.

A system has one output for each seed. Its scores are means; they are computed from its outputs and
never stored in a record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence

from capsnmt.evaluation.metrics import METRICS
from capsnmt.evaluation.seeds import Spread, mean_by_length, spread
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION, Significance

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
        segment_means: name of a metric of segments -> the mean of their scores.
        by_length: BLEU of each bucket of source lengths; ``None`` without a source.
        sign_test: test against the baseline; ``None`` for the baseline and where nothing was
            tested.
    """

    path: str
    scores: Mapping[str, Score]
    tokenized: Mapping[str, Score] = field(default_factory=dict)
    segment_means: Mapping[str, Score] = field(default_factory=dict)
    by_length: Optional[Sequence[Optional[float]]] = None
    sign_test: Optional[SignTest] = None

    @property
    def all_scores(self) -> Mapping[str, Score]:
        """Every score, by a key of ``METRICS``, ``COMPARABLE`` or ``segment_means``."""
        return {**self.scores, **self.tokenized, **self.segment_means}

    def score(self, metric: str) -> Score:
        """Return a score by its key in ``all_scores``.

        Raises:
            KeyError: this output has no such score.
        """
        return self.all_scores[metric]


def common_metrics(outputs: Sequence[OutputScores]) -> Dict[str, str]:
    """Return key and name of the metrics that all outputs were scored with, in their order.

    Outputs that an earlier version scored lack the metrics that were added since. The means of
    segment scores come last.
    """
    names = {**METRICS, **{name: name for output in outputs for name in output.segment_means}}
    scored = [{*output.scores, *output.segment_means} for output in outputs]
    return {key: name for key, name in names.items() if all(key in each for each in scored)}


@dataclass(frozen=True)
class SystemScores:
    """The scores of a system, one output for each seed."""

    name: str
    outputs: Sequence[OutputScores]

    def spread(self, metric: str) -> Spread:
        """Mean and standard deviation of a score over the outputs."""
        return spread([output.score(metric).score for output in self.outputs])

    def mean_delta(self, metric: str) -> Optional[float]:
        """Mean difference to the baseline; ``None`` unless all outputs were tested."""
        deltas = [output.score(metric).delta for output in self.outputs]
        found = [delta for delta in deltas if delta is not None]
        return spread(found).mean if found and len(found) == len(deltas) else None

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
    """The test of all systems against the first.

    Attributes:
        baseline: name of the first system.
        significance: the test, its number of samples and its seed.
    """

    baseline: str
    significance: Significance

    def __str__(self) -> str:
        """Describe the test."""
        method, samples = self.significance.method, self.significance.samples
        return f"{DESCRIPTIONS[method].format(samples)}, seed {self.significance.seed}"


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

"""What an evaluation found, before it is printed or written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from capsnmt.evaluation.lengths import mean_by_length
from capsnmt.evaluation.scoring import Score
from capsnmt.evaluation.seeds import spread
from capsnmt.evaluation.sign_test import SignTest


@dataclass(frozen=True)
class OutputResult:
    """The scores of one output.

    Attributes:
        path: its file.
        scores: by the keys of ``scoring.METRICS``.
        tokenized: by the keys of ``tokenized.COMPARABLE``; empty where the target has no words
            between spaces.
        by_length: BLEU of each of ``lengths.BUCKETS``; ``None`` without a source.
        sign_test: against the baseline's output, where there is one.
    """

    path: str
    scores: Dict[str, Score]
    tokenized: Dict[str, Score]
    by_length: Optional[List[Optional[float]]]
    sign_test: Optional[SignTest]


@dataclass(frozen=True)
class SystemResult:
    """A system and the scores of its outputs, one for each seed."""

    name: str
    outputs: Sequence[OutputResult]

    def spread(self, metric: str) -> Dict[str, Any]:
        """Mean and standard deviation (n - 1) over the outputs of a score or tokenised score."""
        found = [{**each.scores, **each.tokenized}[metric].score for each in self.outputs]
        return spread(found)

    @property
    def by_length(self) -> Optional[List[Optional[float]]]:
        """BLEU by source length, the mean over the outputs."""
        found = [each.by_length for each in self.outputs if each.by_length is not None]
        return mean_by_length(found) if found else None


@dataclass(frozen=True)
class Evaluation:
    """Systems, their scores, and what these were measured against.

    Attributes:
        reference: the reference's file, or the system whose ``T-`` lines it is.
        raw_reference: whether it is a file, and no tokenised text put together again.
        segments: of the test set.
        systems: the baseline first, where there is one.
        lengths: how many segments each bucket of source lengths holds; ``None`` without a source.
        length_unit: what the lengths count.
        baseline: the first system's name, where the others were tested against it.
        compare_mt: the folder of compare-mt's report, where one was asked for.
    """

    reference: str
    raw_reference: bool
    segments: int
    systems: Sequence[SystemResult]
    target_lang: Optional[str]
    lengths: Optional[List[int]]
    length_unit: str
    baseline: Optional[str]
    resamples: int
    seed: int
    compare_mt: Optional[Path] = None

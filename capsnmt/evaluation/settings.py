"""The settings of an evaluation, which need no library: ``--help`` does not wait for sacreBLEU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence

from capsnmt.evaluation.scores import Test
from capsnmt.evaluation.text import TextFormat


@dataclass(frozen=True)
class Settings:
    """The settings of an evaluation."""

    systems: Mapping[str, Sequence[str]]  # name -> a file for each seed; the baseline first
    text: TextFormat  # how a file becomes text
    references: Sequence[str]  # raw, one or more
    tokenized_references: Sequence[str]  # without one, both sides are tokenised with Moses
    source: Optional[str]  # tokens, for BLEU by length; None: the S- lines
    metrics: Sequence[str]  # keys of METRICS
    segment_scores: Mapping[str, Mapping[str, str]]  # metric -> system -> FILE[,FILE...]
    tested: bool  # whether the systems are tested against the first
    test: Test
    compare_mt: Optional[Path]  # the folder of compare-mt's report

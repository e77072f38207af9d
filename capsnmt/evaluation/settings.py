"""The settings of an evaluation, which need no library: ``--help`` does not wait for sacreBLEU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence

from capsnmt.evaluation.compare_mt import CompareMT
from capsnmt.evaluation.outputs import SystemFiles
from capsnmt.evaluation.scores import Test
from capsnmt.evaluation.text import TextFormat


@dataclass(frozen=True)
class Settings:
    """The settings of an evaluation.

    Attributes:
        systems: the files of each system, the baseline first.
        text: how a file becomes text.
        reference: file with the raw reference; ``None`` takes the ``T-`` lines.
        tokenized_reference: file for tokenised BLEU of the tokens as decoded; ``None`` tokenises
            both sides with Moses.
        source: file with source tokens, for BLEU by length; ``None`` takes the ``S-`` lines.
        segment_scores: metric -> system -> ``FILE[,FILE...]``, one for each output: scores of
            every segment that another program computed.
        test: how to test every system against the first; ``None`` for no test.
        compare_mt: compare-mt's report; ``None`` for no report.
    """

    systems: Sequence[SystemFiles]
    text: TextFormat
    reference: Optional[str]
    tokenized_reference: Optional[str]
    source: Optional[str]
    segment_scores: Mapping[str, Mapping[str, str]]
    test: Optional[Test]
    compare_mt: Optional[CompareMT]

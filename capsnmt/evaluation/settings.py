"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence

from capsnmt.evaluation.scores import Test

REMOVE_BPE = ("none", "subword_nmt", "sentencepiece")
DETOKENIZE = ("none", "moses")

MOST_SAMPLES = 100000  # D: sacreBLEU keeps a number for each sample and sentence in memory


@dataclass(frozen=True)
class TextSettings:
    """How the file of a system becomes text.

    Attributes:
        input: ``generate`` (output of fairseq-generate) or ``plain`` (one sentence per line).
        remove_bpe: one of ``REMOVE_BPE``.
        detokenize: one of ``DETOKENIZE``.
        target_lang: language code; ``None`` takes it from the log of fairseq-generate.
    """

    input: str = "generate"
    remove_bpe: str = "subword_nmt"
    detokenize: str = "moses"
    target_lang: Optional[str] = None


@dataclass(frozen=True)
class CompareMT:
    """The settings of compare-mt's report.

    Attributes:
        folder: folder of the report.
        samples: number of resamples of its bootstrap.
        seed: seed of the random numbers.
    """

    folder: Path
    samples: int
    seed: int


@dataclass(frozen=True)
class Settings:
    """Everything about an evaluation.

    Attributes:
        systems: ``PATH`` or ``NAME=PATH[,PATH...]`` of each system, the baseline first.
        text: how the files of the systems become text.
        reference: file with the raw reference; ``None`` takes the ``T-`` lines.
        tokenized_reference: file for tokenised BLEU of the tokens as decoded; ``None`` tokenises
            both sides with Moses.
        source: file with source tokens, for BLEU by length; ``None`` takes the ``S-`` lines.
        segment_scores: metric -> system -> ``FILE[,FILE...]``, one for each output: scores of
            every segment that another program computed.
        test: how to test every system against the first; ``None`` for no test.
        compare_mt: compare-mt's report; ``None`` for no report.
        json: file for the record, or ``-`` for the standard output.
    """

    systems: Sequence[str]
    text: TextSettings
    reference: Optional[str]
    tokenized_reference: Optional[str]
    source: Optional[str]
    segment_scores: Mapping[str, Mapping[str, str]]
    test: Optional[Test]
    compare_mt: Optional[CompareMT]
    json: Optional[str]

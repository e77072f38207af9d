"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence

REMOVE_BPE = ("none", "subword_nmt", "sentencepiece")
DETOKENIZE = ("none", "moses")

# The tests of significance, as the command line names them, and sacreBLEU's number of samples:
# resamples of the bootstrap, trials of approximate randomization.
BOOTSTRAP, RANDOMIZATION = "bootstrap", "approximate-randomization"
SAMPLES = {BOOTSTRAP: 1000, RANDOMIZATION: 10000}
MOST_SAMPLES = 100000  # D: sacreBLEU keeps a number for each sample and sentence in memory
SEED = 12345


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
class Significance:
    """The settings of a paired test of significance.

    Attributes:
        method: a key of ``SAMPLES``.
        samples: number of resamples or trials, at least 1.
        seed: seed of the random numbers, at least 1.
    """

    method: str = BOOTSTRAP
    samples: int = SAMPLES[BOOTSTRAP]
    seed: int = SEED


@dataclass(frozen=True)
class CompareMT:
    """The settings of compare-mt's report.

    Attributes:
        folder: folder of the report.
        resamples: number of resamples of its bootstrap, at least 1.
        seed: seed of the random numbers, at least 1.
    """

    folder: Path
    resamples: int = SAMPLES[BOOTSTRAP]
    seed: int = SEED


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
        significance: how to test every system against the first; ``None`` for no test.
        compare_mt: compare-mt's report; ``None`` for no report.
        json: file for the record, or ``-`` for the standard output.
    """

    systems: Sequence[str]
    text: TextSettings
    reference: Optional[str]
    tokenized_reference: Optional[str]
    source: Optional[str]
    segment_scores: Mapping[str, Mapping[str, str]]
    significance: Optional[Significance]
    compare_mt: Optional[CompareMT]
    json: Optional[str]

"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

REMOVE_BPE = ("none", "subword_nmt", "sentencepiece")
DETOKENIZE = ("none", "moses")


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
class Bootstrap:
    """The settings of a bootstrap.

    Attributes:
        resamples: number of resamples, at least 1.
        seed: seed of the random numbers, at least 1.
    """

    resamples: int = 1000
    seed: int = 12345


@dataclass(frozen=True)
class EvaluationSettings:
    """Everything about an evaluation but its systems.

    Attributes:
        text: how the files of the systems become text.
        reference: file with the raw reference; ``None`` takes the ``T-`` lines.
        tokenized_reference: file for tokenised BLEU of the tokens as decoded; ``None`` tokenises
            both sides with Moses.
        source: file with source tokens, for BLEU by length; ``None`` takes the ``S-`` lines.
        test: whether to test every system against the first.
        bootstrap: settings of that test, and of compare-mt's.
        compare_mt: folder for compare-mt's report; ``None`` for no report.
    """

    text: TextSettings = field(default_factory=TextSettings)
    reference: Optional[str] = None
    tokenized_reference: Optional[str] = None
    source: Optional[str] = None
    test: bool = False
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    compare_mt: Optional[Path] = None

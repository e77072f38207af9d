"""The keys and values of an experiment configuration."""

from __future__ import annotations

import re
from typing import Any, Dict

from capsnmt.evaluation.settings import DETOKENIZE, REMOVE_BPE, SAMPLES
from capsnmt.settings import COUNT, FLAG, INTEGER, POSITIVE, SWITCH, TEXT, Free, Kind, check, one_of

PARAMETERS = Kind(
    "a count as printed, such as 88.0M for a total or +1.6K for a difference",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"\+?\d+(\.\d+)?[KM]", value)),
)

# The flags of the evaluation that need a baseline.
SIGNIFICANCE = {"significance": one_of(*SAMPLES), "resamples": COUNT, "trials": COUNT}

AVERAGES = ("last-updates", "last-epochs", "best")

SCHEMA: Dict[str, Any] = {
    "dataset": TEXT,
    "arch": TEXT,
    "init-from": TEXT,  # the row whose model the training starts from
    "precision": one_of("fp32", "fp16", "bf16", "auto"),
    "data": {
        "recipe": TEXT,
        "corpora": TEXT,
        "source-lang": TEXT,
        "target-lang": TEXT,
        "test-sets": Free(TEXT),
        # Sentence classification: the probing tasks, and flags of the command that makes the data.
        "tasks": TEXT,
        "options": Free(FLAG),
    },
    "batch": {
        "tokens-per-update": COUNT,
        "max-tokens": COUNT,
        "sentences-per-update": COUNT,
        "max-sentences": COUNT,
    },
    "train": Free(
        FLAG,
        {
            "max-update": COUNT,
            "save-interval-updates": COUNT,
            "keep-interval-updates": INTEGER,
            "keep-last-epochs": INTEGER,
            "keep-best-checkpoints": INTEGER,
        },
    ),
    "average": dict.fromkeys(AVERAGES, COUNT),
    "generate": Free(FLAG),
    "score": {
        "remove-bpe": one_of(*REMOVE_BPE),
        "detokenize": one_of(*DETOKENIZE),
        "tokenized": SWITCH,  # the text is published as tokens, which are scored as they are
        "comet-model": TEXT,
        **SIGNIFICANCE,
    },
}

# The values that papers print about a row, by paper. They are not settings: no run depends on them.
PAPER: Dict[str, Any] = {
    "paper": Free(
        {
            "table": TEXT,
            "name": TEXT,
            "baseline": TEXT,
            "bleu": POSITIVE,
            "validation-bleu": POSITIVE,
            "parameters": PARAMETERS,
            "training-speed": POSITIVE,  # steps a second
            "decoding-speed": POSITIVE,  # sentences a second
            "note": TEXT,
        }
    )
}

REQUIRED = ("dataset", "arch", "precision")
REQUIRED_TO_CLASSIFY = ("batch.sentences-per-update", "batch.max-sentences")
REQUIRED_TO_TRANSLATE = (
    "data.source-lang",
    "data.target-lang",
    "data.test-sets",
    "batch.tokens-per-update",
    "batch.max-tokens",
    "train.max-update",
)


def check_paper(paper: Any, origin: str) -> None:
    """Raise unless ``paper`` holds values that papers print about a row, by paper.

    Raises:
        ConfigurationError: naming the origin, the key and what is allowed.
    """
    check(PAPER, ["paper"], paper, origin)
    for name, printed in (paper or {}).items():
        check(PAPER, ["paper", name], printed, origin)
        for key, value in (printed or {}).items():
            check(PAPER, ["paper", name, key], value, origin)

"""What an experiment configuration may contain."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Sequence, Union

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.settings import DETOKENIZE, REMOVE_BPE


@dataclass(frozen=True)
class Kind:
    """The values a key may take: how to say it, how to tell."""

    allowed: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Free:
    """A section whose keys are free; its values are of one kind, but for the ``known`` ones."""

    kind: Union[Kind, Mapping[str, Kind]]
    known: Mapping[str, Kind] = field(default_factory=dict)


def _one_of(*values: str) -> Kind:
    return Kind(" or ".join(values), lambda value: value in values)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind("a text", lambda value: isinstance(value, str))
WHOLE = Kind("a whole number", _is_whole)
COUNT = Kind("a whole number, 1 or more", lambda value: _is_whole(value) and value > 0)
FLAG = Kind("a text, a number, true or false", lambda value: isinstance(value, (str, int, float)))
SECTION = Kind("a mapping", lambda value: isinstance(value, dict))
POSITIVE = Kind(
    "a number above 0",
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0,
)
PARAMETERS = Kind(
    "a count as printed, such as 88.0M for a total or +1.6K for a difference",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"\+?\d+(\.\d+)?[KM]", value)),
)

AVERAGES = ("last-updates", "last-epochs", "best")

SCHEMA: Dict[str, Any] = {
    "dataset": TEXT,
    "arch": TEXT,
    # **D**: no bf16: both supported hosts take --bf16 for a TPU and then want torch_xla.
    "precision": _one_of("fp32", "fp16"),
    "data": {
        "recipe": TEXT,
        "corpora": TEXT,
        "source-lang": TEXT,
        "target-lang": TEXT,
        "test-sets": Free(TEXT),
    },
    "batch": {"tokens-per-update": COUNT, "max-tokens": COUNT},
    "train": Free(
        FLAG,
        {
            "max-update": COUNT,
            "save-interval-updates": COUNT,
            "keep-interval-updates": WHOLE,
            "keep-last-epochs": WHOLE,
            "keep-best-checkpoints": WHOLE,
        },
    ),
    "average": dict.fromkeys(AVERAGES, COUNT),
    "generate": Free(FLAG),
    "score": {"remove-bpe": _one_of(*REMOVE_BPE), "detokenize": _one_of(*DETOKENIZE)},
}

# What papers print about a row, by paper: no setting, so that no run depends on it.
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

REQUIRED = (
    "dataset",
    "arch",
    "precision",
    "data.source-lang",
    "data.target-lang",
    "data.test-sets",
    "batch.tokens-per-update",
    "batch.max-tokens",
    "train.max-update",
)


def check_paper(paper: Any, origin: str) -> None:
    """Raise unless ``paper`` is what papers print about a row, by paper.

    Raises:
        ConfigurationError: naming the origin, the key and what is allowed.
    """
    check(["paper"], paper, origin, PAPER)
    for name, printed in (paper or {}).items():
        check(["paper", name], printed, origin, PAPER)
        for key, value in (printed or {}).items():
            check(["paper", name, key], value, origin, PAPER)


def check(path: Sequence[str], value: Any, origin: str, schema: Mapping[str, Any] = SCHEMA) -> None:
    """Raise unless ``value`` may stand at ``path``; ``None`` may stand anywhere (it unsets).

    Raises:
        ConfigurationError: naming the origin, the key and what is allowed.
    """
    node: Union[Kind, Free, Mapping[str, Any]] = schema
    for depth, part in enumerate(path):
        section = ".".join(path[:depth])
        if isinstance(node, Kind):
            raise ConfigurationError(
                f"{origin}: {'.'.join(path)}: {section} takes {node.allowed}, it has no keys"
            )
        if isinstance(node, Free):
            node = node.known.get(part, node.kind)
            continue
        if part not in node:
            raise ConfigurationError(
                f"{origin}: {'.'.join(path)}: unknown key: {section or 'a configuration'} may have "
                f"{', '.join(node)}"
            )
        node = node[part]
    kind = node if isinstance(node, Kind) else SECTION
    if value is not None and not kind.fits(value):
        raise ConfigurationError(f"{origin}: {'.'.join(path)}: {value!r}: give {kind.allowed}")

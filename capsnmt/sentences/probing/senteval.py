"""SentEval's ten probing tasks (Conneau et al. 2018) and its file format."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.sentences.examples import Example, existing, read_fields
from capsnmt.sentences.probing.tasks import require_task

FIELDS = ("tr, va or te", "label", "sentence")
SPLITS = {"train": "tr", "valid": "va", "test": "te"}
# lower bounds of the sentence lengths for which accuracy is reported
LENGTHS = (1, 9, 13, 17, 21, 26)


def length_class(sentence: str) -> int:
    """Return the lower bound of the group of lengths to which a sentence belongs.

    >>> length_class("a b c d e f g h i j")
    9
    """
    length = len(sentence.split())
    return max(bound for bound in LENGTHS if bound <= length)


def read_task(folder: Path, name: str) -> Dict[str, List[Example]]:
    """Return the examples of each split of a task in the order of the file.

    Raises:
        ConfigurationError: the file or a split is missing, or a line is not in SentEval's format.
    """
    path = existing(
        folder / require_task(name).file,
        f"fetch SentEval's with python -m capsnmt.sentences.probing.download --tasks {name} "
        f"--output {folder}, or make your own with python -m capsnmt.sentences.probing.build",
    )
    splits: Dict[str, List[Example]] = {split: [] for split in SPLITS}
    of_mark = {mark: split for split, mark in SPLITS.items()}
    for number, (mark, label, sentence) in read_fields(path, FIELDS):
        example = Example((sentence,), label, length_class(sentence), path, number)
        if mark not in of_mark:
            example.reject(f"unknown split {mark!r}: give {FIELDS[0]}")
        splits[of_mark[mark]].append(example)
    for split, examples in splits.items():
        if not examples:
            raise ConfigurationError(
                f"{path}: no {split} split: no line begins with {SPLITS[split]}"
            )
    return splits


def format_task(lines: Dict[str, List[Tuple[str, str]]]) -> List[str]:
    """Return the lines of a task's file for (label, sentence) pairs by split."""
    return [
        f"{SPLITS[split]}\t{label}\t{sentence}"
        for split in SPLITS
        for label, sentence in lines[split]
    ]

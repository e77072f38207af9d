"""The files of Bowman et al. (2015), one per number of operators.

Each line is ``relation TAB sentence TAB sentence``.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import List

from capsnmt.cli import ConfigurationError
from capsnmt.sentences.examples import Example, existing, read_fields
from capsnmt.sentences.logical_inference.logic import RELATIONS, parse

FIELDS = ("relation", "sentence", "sentence")
MAX_OPERATORS = 12  # the last file has sentences with 12 or more
HELD_OUT = 10  # one in ten training pairs is for validation


def bucket(operators: int) -> int:
    """Return the file number of a pair whose longer sentence has this many operators."""
    return min(operators, MAX_OPERATORS)


@functools.cache  # training and validation read the same files
def read_file(folder: Path, part: str, operators: int) -> List[Example]:
    """Return the pairs of ``trainN`` or ``testN``, plain or gzipped.

    Raises:
        ConfigurationError: the file is missing, or a line is not a relation and two sentences of
            the grammar, or has another number of operators.
    """
    path = existing(
        folder / f"{part}{operators}",
        f"a data folder has {part}0 to {part}{MAX_OPERATORS}; python -m "
        f"capsnmt.sentences.logical_inference.generate makes one",
    )
    examples = []
    for number, (label, *sentences) in read_fields(path, FIELDS):
        example = Example(tuple(sentences), label, operators, path, number)
        if label not in RELATIONS:
            example.reject(f"unknown relation {label!r}: choose from {' '.join(RELATIONS)}")
        try:
            found = bucket(max(parse(sentence).operators for sentence in sentences))
        except ValueError as error:
            example.reject(str(error))
        if found != operators:
            example.reject(
                f"{found} operators in the longer sentence, but the file is for {operators}"
            )
        examples.append(example)
    return examples


def is_held_out(example: Example) -> bool:
    """Return whether a pair of the training files is for validation.

    **D**: the paper splits 0.8/0.1/0.1, but the data have no validation set. We hold out a tenth of
    the training pairs, chosen by a hash of the two sentences in either order: the choice is the
    same in every run, and a pair and its mirror image are in the same split.
    """
    digest = hashlib.sha256("\t".join(sorted(example.sentences)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT == 0


def read_split(folder: Path, split: str, max_operators: int) -> List[Example]:
    """Return the pairs of a split; training and validation have at most ``max_operators``.

    Raises:
        ConfigurationError: a file is missing or malformed, or the split is empty.
    """
    if split == "test":
        return [e for n in range(MAX_OPERATORS + 1) for e in read_file(folder, "test", n)]
    files = [e for n in range(max_operators + 1) for e in read_file(folder, "train", n)]
    examples = [e for e in files if is_held_out(e) == (split == "valid")]
    if not examples:
        raise ConfigurationError(
            f"{folder}: the {split} split is empty: train0 to train{max_operators} have only "
            f"{len(files)} pairs"
        )
    return examples

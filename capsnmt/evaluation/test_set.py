"""What all outputs are compared with: the reference, its language, and the source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import Output, read_lines
from capsnmt.lines import blank_lines

UNKNOWN_IN_REFERENCE = "<<unk>>"  # how fairseq prints a reference word that its dictionary lacks


@dataclass(frozen=True)
class TestSet:
    """A test set, whose sentences all outputs translate.

    Attributes:
        name: of the reference, for messages.
        reference: its segments as text.
        target_lang: language code; ``None`` if unknown.
        length_unit: what a source length counts.
        source: tokens of each segment, separated by spaces; ``None`` without a common source.
        tokens: the tokenised reference; ``None`` to tokenise the reference.
    """

    __test__ = False  # no class of tests, whatever pytest reads in its name

    name: str
    reference: List[str]
    target_lang: Optional[str]
    length_unit: str
    source: Optional[List[str]]
    tokens: Optional[List[str]]


def read_test_set(
    outputs: Sequence[Output],
    reference: Optional[str],
    source: Optional[str],
    tokens: Optional[str],
) -> TestSet:
    """Read the test set, and check that all outputs translate it.

    Args:
        outputs: all outputs of all systems.
        reference: file with the raw reference; ``None`` takes the ``T-`` lines.
        source: file with source tokens; ``None`` takes the ``S-`` lines.
        tokens: file with the tokenised reference; ``None`` to tokenise the reference.

    Raises:
        ConfigurationError: a file cannot be read, a number of segments differs, there is no
            reference, or outputs name different languages.
    """
    languages = sorted({each.target_lang for each in outputs if each.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}: score one language at a time"
        )
    if reference is None:
        name, segments = _target_lines(outputs)
    else:
        name, segments = reference, [line.rstrip() for line in read_lines(reference)]
    blank = blank_lines(segments, name)
    if blank:
        warn(f"{blank} of the {len(segments)} segments of the reference {name} are blank")
    for output in outputs:
        check_count(output.label, output.hypotheses, name, segments)
        empty = sum(not line for line in output.hypotheses)
        if empty:
            warn(f"{empty} of the {len(segments)} translations of {output.label} are empty")
    tokenised = None if tokens is None else read_lines(tokens)
    if tokenised is not None:
        check_count(f"--tokenized-reference {tokens}", tokenised, name, segments)
    if source is None:
        unit, sentences = "the tokens of the S- lines", _source_lines(outputs)
    else:
        unit, sentences = f"the tokens of {source}", read_lines(source)
        check_count(f"--source {source}", sentences, name, segments)
    return TestSet(name, segments, next(iter(languages), None), unit, sentences, tokenised)


def check_count(
    name: str, segments: Sequence[str], reference: str, expected: Sequence[str]
) -> None:
    """Raise unless a text has as many segments as the reference, whose name is ``reference``."""
    if len(segments) != len(expected):
        raise ConfigurationError(
            f"{name} has {len(segments)} segments, but the reference {reference} has "
            f"{len(expected)}: give the same test set"
        )


def _target_lines(outputs: Sequence[Output]) -> Tuple[str, List[str]]:
    """Return a name for the ``T-`` lines of all outputs, and their text.

    Raises:
        ConfigurationError: no output has ``T-`` lines, or they differ.
    """
    with_lines = [(each.label, each.references) for each in outputs if each.references is not None]
    if not with_lines:
        raise ConfigurationError(
            f"{outputs[0].label} has no T- lines to take the reference from: give --reference FILE"
        )
    (first, reference), *others = with_lines
    for label, lines in others:
        for number, (one, other) in enumerate(zip(reference, lines)):
            if one != other:
                raise ConfigurationError(
                    f"{first} and {label} have different references of sentence {number} "
                    f"(T-{number}): not the same test set, or not the same BPE and dictionary; "
                    "give --reference FILE"
                )
    warn("the reference is detokenised T- lines, not the raw reference: its scores are")
    warn("comparable among these systems only (give --reference FILE)")
    unknown = sum(UNKNOWN_IN_REFERENCE in line for line in reference)
    if unknown:
        warn(f"{unknown} references contain {UNKNOWN_IN_REFERENCE}: give --reference FILE")
    return f"the T- lines of {first}", reference


def _source_lines(outputs: Sequence[Output]) -> Optional[List[str]]:
    """Return the ``S-`` lines of all outputs; ``None`` if they differ or there are none.

    **D**: systems with different BPE have different lengths of a sentence, and so no common
    buckets. This is a warning, not an error.
    """
    source = outputs[0].sources
    if all(each.sources == source for each in outputs):
        return source
    warn("the systems' S- lines differ (another BPE?): BLEU by length needs --source FILE")
    return None


def warn(line: str) -> None:
    """Print a warning of ``capsnmt-evaluate``."""
    print(f"capsnmt-evaluate: {line}", file=sys.stderr)

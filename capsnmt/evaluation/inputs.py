"""What the systems are measured against: reference, source, baseline."""

from __future__ import annotations

import sys
from typing import List, Optional, Sequence, Tuple

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.reading import read_lines
from capsnmt.evaluation.systems import (
    UNKNOWN_IN_REFERENCE,
    Output,
    System,
    check_count,
    common_references,
    common_sources,
)


def note(line: str) -> None:
    """Tell the user something beside the result."""
    print(f"capsnmt-evaluate: {line}", file=sys.stderr)


def reference_of(outputs: Sequence[Output], path: Optional[str]) -> Tuple[str, List[str]]:
    """Where the reference is from, and its segments.

    Args:
        outputs: whose ``T-`` lines are the reference where there is no file.
        path: the raw reference.

    Raises:
        ConfigurationError: there is none, or its length is not that of every output.
    """
    if path is None:
        name, reference = f"the T- lines of {outputs[0].label}", common_references(outputs)
        note("the reference is tokenised text put together again, not the raw reference: scores")
        note("are comparable among these systems only (give --reference FILE)")
        unknown = sum(UNKNOWN_IN_REFERENCE in line for line in reference)
        if unknown:
            note(f"{unknown} references hold {UNKNOWN_IN_REFERENCE}: give --reference FILE")
    else:
        name, reference = path, [line.rstrip() for line in read_lines(path)]
    for output in outputs:
        check_count(name, len(reference), output.label, len(output.hypotheses))
        empty = sum(not line for line in output.hypotheses)
        if empty:
            note(f"{empty} of the {len(reference)} translations of {output.label} are empty")
    return name, reference


def source_of(
    outputs: Sequence[Output], path: Optional[str], segments: int
) -> Tuple[str, Optional[List[str]]]:
    """What its lengths count, and the source; ``None`` where there is none that all systems share.

    Args:
        outputs: whose ``S-`` lines are the source where there is no file.
        path: a source of tokens, separated by spaces.
        segments: of the reference.

    Raises:
        ConfigurationError: the file's length is not that of the reference.
    """
    if path is None:
        source = common_sources(outputs)
        if source is None and any(output.sources for output in outputs):
            note("the systems' S- lines differ (another BPE?): BLEU by length needs --source FILE")
        return "the tokens of the S- lines", source
    source = read_lines(path)
    if len(source) != segments:
        raise ConfigurationError(
            f"--source {path} has {len(source)} segments, but the reference has {segments}: give "
            "the source of the same test set"
        )
    return f"the tokens of {path}", source


def check_pairs(systems: Sequence[System]) -> None:
    """Raise unless every output has an output of the baseline to be tested against.

    Raises:
        ConfigurationError: the baseline, the first system, has several outputs, and another system
            has not as many.
    """
    baseline, *others = systems
    for system in others:
        if len(baseline.outputs) not in (1, len(system.outputs)):
            raise ConfigurationError(
                f"{system.name} has {len(system.outputs)} outputs, but the baseline "
                f"{baseline.name} has {len(baseline.outputs)}: give one of the baseline, or one "
                "for each seed"
            )


def baseline_output(baseline: System, number: int) -> Output:
    """The baseline's output of the seed of a system's output ``number``."""
    return baseline.outputs[number if len(baseline.outputs) > 1 else 0]

"""What the outputs of some systems are compared with: reference, source, baseline."""

from __future__ import annotations

import sys
from typing import List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import Output, SystemOutputs
from capsnmt.evaluation.text_files import read_lines
from capsnmt.lines import blank_lines

UNKNOWN_IN_REFERENCE = "<<unk>>"  # how fairseq prints a reference word that its dictionary lacks


def warn(line: str) -> None:
    """Print a warning of ``capsnmt-evaluate``."""
    print(f"capsnmt-evaluate: {line}", file=sys.stderr)


def common_language(outputs: Sequence[Output]) -> Optional[str]:
    """Return the target language of all outputs, or ``None`` if no output names one.

    Raises:
        ConfigurationError: two outputs name different languages.
    """
    languages = sorted({each.target_lang for each in outputs if each.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}: score one language at a time"
        )
    return next(iter(languages), None)


def reference_of(outputs: Sequence[Output], path: Optional[str]) -> List[str]:
    """Return the segments of the reference.

    Args:
        outputs: all outputs; without a file their ``T-`` lines are the reference.
        path: file with the raw reference.

    Raises:
        ConfigurationError: there is no reference, it is blank, or an output has another number of
            segments.
    """
    if path is None:
        name, reference = f"the T- lines of {outputs[0].label}", common_references(outputs)
        warn("the reference is detokenised T- lines, not the raw reference: its scores are")
        warn("comparable among these systems only (give --reference FILE)")
        unknown = sum(UNKNOWN_IN_REFERENCE in line for line in reference)
        if unknown:
            warn(f"{unknown} references contain {UNKNOWN_IN_REFERENCE}: give --reference FILE")
    else:
        name, reference = path, [line.rstrip() for line in read_lines(path)]
    blank = blank_lines(reference, name)
    if blank:
        warn(f"{blank} of the {len(reference)} segments of the reference {name} are blank")
    for output in outputs:
        check_count(name, len(reference), output.label, len(output.hypotheses))
        empty = sum(not line for line in output.hypotheses)
        if empty:
            warn(f"{empty} of the {len(reference)} translations of {output.label} are empty")
    return reference


def common_references(outputs: Sequence[Output]) -> List[str]:
    """Return the reference in the ``T-`` lines of all outputs.

    Raises:
        ConfigurationError: no output has ``T-`` lines, or they differ.
    """
    first = next((output for output in outputs if output.references is not None), None)
    if first is None or first.references is None:
        raise ConfigurationError(
            f"{outputs[0].label} has no T- lines to take the reference from: give --reference FILE"
        )
    for output in outputs:
        if output.references is None:
            continue
        check_count(first.label, len(first.references), output.label, len(output.references))
        for number, (one, other) in enumerate(zip(first.references, output.references)):
            if one != other:
                raise ConfigurationError(
                    f"{first.label} and {output.label} have different references of sentence "
                    f"{number} (T-{number}): not the same test set, or not the same BPE and "
                    "dictionary; give --reference FILE"
                )
    return first.references


def source_of(
    outputs: Sequence[Output], path: Optional[str], segments: int
) -> Tuple[str, Optional[List[str]]]:
    """Return the unit of source lengths, and the source; ``None`` without a common source.

    Args:
        outputs: all outputs; without a file their ``S-`` lines are the source.
        path: file with source tokens, separated by spaces.
        segments: number of segments of the reference.

    Raises:
        ConfigurationError: the file has another number of lines than the reference.
    """
    if path is None:
        source = common_sources(outputs)
        if source is None and any(output.sources for output in outputs):
            warn("the systems' S- lines differ (another BPE?): BLEU by length needs --source FILE")
        return "the tokens of the S- lines", source
    source = read_lines(path)
    if len(source) != segments:
        raise ConfigurationError(
            f"--source {path} has {len(source)} segments, but the reference has {segments}: give "
            "the source of the same test set"
        )
    return f"the tokens of {path}", source


def common_sources(outputs: Sequence[Output]) -> Optional[List[str]]:
    """Return the source in the ``S-`` lines of all outputs; ``None`` if there is none.

    **D**: systems with different BPE have different lengths of a sentence, and so no common
    buckets. This is not an error: the result is ``None``, and the caller reports it.
    """
    sources = [output.sources for output in outputs]
    return sources[0] if all(each == sources[0] for each in sources) else None


def check_count(reference: str, expected: int, name: str, count: int) -> None:
    """Raise if a system and the reference have different numbers of segments.

    Raises:
        ConfigurationError: the numbers differ.
    """
    if count != expected:
        raise ConfigurationError(
            f"{name} has {count} segments, but the reference {reference} has {expected}: they are "
            "not the same test set"
        )


def check_pairs(systems: Sequence[SystemOutputs]) -> None:
    """Raise unless every output can be paired with an output of the baseline.

    Raises:
        ConfigurationError: the baseline, which is the first system, has several outputs, and
            another system has another number of outputs.
    """
    baseline, *others = systems
    for system in others:
        if len(baseline.outputs) not in (1, len(system.outputs)):
            raise ConfigurationError(
                f"{system.name} has {len(system.outputs)} outputs, but the baseline "
                f"{baseline.name} has {len(baseline.outputs)}: give one of the baseline, or one "
                "for each seed"
            )


def baseline_output(baseline: SystemOutputs, number: int) -> Output:
    """Return the output of the baseline that a system's output ``number`` is paired with."""
    return baseline.outputs[number if len(baseline.outputs) > 1 else 0]

"""The systems to score: which files, and how their tokens become text."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Callable, List, Optional, Sequence, Tuple

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.generate_output import parse_generate_output
from capsnmt.evaluation.reading import STDIN, read_lines
from capsnmt.evaluation.text import moses_detokenizer, remove_bpe

UNKNOWN_IN_REFERENCE = "<<unk>>"  # how fairseq prints a reference word that its dictionary lacks


@dataclass(frozen=True)
class TextSettings:
    """How a system's file becomes text.

    Attributes:
        input: ``generate`` (fairseq-generate's output) or ``plain`` (a sentence a line).
        remove_bpe: one of ``text.REMOVE_BPE``.
        detokenize: one of ``text.DETOKENIZE``.
        target_lang: a language code, or ``None`` to take it from fairseq-generate's log.
    """

    input: str
    remove_bpe: str
    detokenize: str
    target_lang: Optional[str]


@dataclass(frozen=True)
class System:
    """A system's output as text, in the order of the test set.

    Attributes:
        references: the ``T-`` lines as text, where there are any.
        target_lang: the language its file or the settings name.
    """

    name: str
    path: str
    hypotheses: List[str]
    references: Optional[List[str]]
    target_lang: Optional[str]


def split_name(argument: str) -> Tuple[str, str]:
    """(name, path) of ``name=path``, or of a path, which then is the name.

    >>> split_name("em=runs/em/test.out"), split_name("runs/em/test.out")
    (('em', 'runs/em/test.out'), ('runs/em/test.out', 'runs/em/test.out'))
    """
    name, separator, path = argument.partition("=")
    if separator and not os.path.exists(argument):
        return name, path
    return argument, argument


def read_system(argument: str, settings: TextSettings) -> System:
    """Read one system.

    Raises:
        ConfigurationError: its file cannot be read or is not what ``settings.input`` says.
    """
    name, path = split_name(argument)
    lines = read_lines(path)
    if settings.input == "plain":
        to_text = _to_text(settings)
        return System(name, path, [to_text(x) for x in lines], None, settings.target_lang)
    output = parse_generate_output(lines, name)
    settings = replace(settings, target_lang=settings.target_lang or output.target_lang)
    to_text = _to_text(settings)
    references = output.references
    if references is not None and not _is_detokenised(output.hypotheses, output.decoded):
        references = [to_text(line) for line in references]
    return System(
        name, path, [to_text(x) for x in output.hypotheses], references, settings.target_lang
    )


def _to_text(settings: TextSettings) -> Callable[[str], str]:
    """The function from a line of tokens to text."""
    if settings.detokenize == "none":
        return lambda line: remove_bpe(line, settings.remove_bpe).rstrip()
    detokenize = moses_detokenizer(settings.target_lang)
    return lambda line: detokenize(remove_bpe(line, settings.remove_bpe))


def _is_detokenised(hypotheses: Sequence[str], decoded: Optional[Sequence[str]]) -> bool:
    """Whether fairseq-generate ran a detokeniser of its own, and so on the ``T-`` lines too.

    It did if ``D-`` differs from ``H-`` by more than the removal of BPE.
    """
    if decoded is None:
        return False
    return not any(
        list(decoded) == [remove_bpe(line, kind) for line in hypotheses]
        for kind in ("none", "subword_nmt")
    )


def read_systems(arguments: Sequence[str], settings: TextSettings) -> List[System]:
    """Read all systems.

    Raises:
        ConfigurationError: one cannot be read, two have one name, the standard input is read twice,
            or their target languages differ.
    """
    names, paths = zip(*map(split_name, arguments))
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two systems are called {name!r}: tell them apart by NAME=PATH"
            )
    if paths.count(STDIN) > 1:
        raise ConfigurationError("only one system can come from the standard input (-)")
    systems = [read_system(argument, settings) for argument in arguments]
    languages = sorted({system.target_lang for system in systems if system.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}: score one language at a time"
        )
    return systems


def common_references(systems: Sequence[System]) -> List[str]:
    """The one reference that all systems' ``T-`` lines hold.

    Raises:
        ConfigurationError: there are none, or they differ.
    """
    first = next((system for system in systems if system.references is not None), None)
    if first is None or first.references is None:
        raise ConfigurationError(
            f"{systems[0].name} has no T- lines to take the reference from: give --reference FILE"
        )
    for system in systems:
        if system.references is None:
            continue
        check_count(first.name, len(first.references), system.name, len(system.references))
        for number, (one, other) in enumerate(zip(first.references, system.references)):
            if one != other:
                raise ConfigurationError(
                    f"{first.name} and {system.name} have different references of sentence "
                    f"{number} (T-{number}): not the same test set, or not the same BPE and "
                    "dictionary; give --reference FILE"
                )
    return first.references


def check_count(reference: str, expected: int, name: str, count: int) -> None:
    """Raise one line where a system has not as many segments as the reference.

    Raises:
        ConfigurationError: the counts differ.
    """
    if count != expected:
        raise ConfigurationError(
            f"{name} has {count} segments, but the reference {reference} has {expected}: they are "
            "not the same test set"
        )

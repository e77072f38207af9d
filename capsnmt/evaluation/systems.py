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
class Output:
    """One output of a system, in the order of the test set.

    Attributes:
        label: what to call it in an error.
        hypotheses: as text.
        tokens: the same before detokenisation, without BPE.
        references: the ``T-`` lines as text, where there are any.
        sources: the ``S-`` lines as they stand, where there are any.
        target_lang: the language its file or the settings name.
    """

    label: str
    path: str
    hypotheses: List[str]
    tokens: List[str]
    references: Optional[List[str]]
    sources: Optional[List[str]]
    target_lang: Optional[str]


@dataclass(frozen=True)
class System:
    """A system: its outputs, one for each seed it was trained with."""

    name: str
    outputs: List[Output]


def split_name(argument: str) -> Tuple[str, str]:
    """(name, paths) of ``name=paths``, or of paths, which then are the name.

    >>> split_name("em=runs/em/test.out"), split_name("runs/em/test.out")
    (('em', 'runs/em/test.out'), ('runs/em/test.out', 'runs/em/test.out'))
    """
    name, separator, path = argument.partition("=")
    if separator and not os.path.exists(argument):
        return name, path
    return argument, argument


def split_paths(paths: str) -> List[str]:
    """The files of ``FILE,FILE,FILE``; a file whose name has commas is one file.

    >>> split_paths("seed-1/test.out,seed-2/test.out")
    ['seed-1/test.out', 'seed-2/test.out']
    """
    return [paths] if os.path.exists(paths) else paths.split(",")


def read_system(argument: str, settings: TextSettings) -> System:
    """Read one system.

    Raises:
        ConfigurationError: a file cannot be read or is not what ``settings.input`` says, or comes
            twice.
    """
    name, argument = split_name(argument)
    paths = split_paths(argument)
    for path in paths:
        if not path:
            raise ConfigurationError(f"{name}={argument}: a path is empty: give NAME=FILE,FILE")
        if paths.count(path) > 1:
            raise ConfigurationError(f"{name}: {path} comes twice: give the file of each seed once")
    several = len(paths) > 1
    return System(
        name,
        [read_output(path, f"{name} ({path})" if several else name, settings) for path in paths],
    )


def read_output(path: str, label: str, settings: TextSettings) -> Output:
    """Read one file.

    Raises:
        ConfigurationError: it cannot be read or is not what ``settings.input`` says.
    """
    lines = read_lines(path)
    references = sources = None
    if settings.input == "generate":
        output = parse_generate_output(lines, label)
        settings = replace(settings, target_lang=settings.target_lang or output.target_lang)
        lines, references, sources = output.hypotheses, output.references, output.sources
        if references is not None and not _is_detokenised(lines, output.decoded):
            references = [*map(_to_text(settings), references)]
    return Output(
        label,
        path,
        hypotheses=[*map(_to_text(settings), lines)],
        tokens=[remove_bpe(line, settings.remove_bpe) for line in lines],
        references=references,
        sources=sources,
        target_lang=settings.target_lang,
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
    if [each for path in paths for each in split_paths(path)].count(STDIN) > 1:
        raise ConfigurationError("only one system can come from the standard input (-)")
    systems = [read_system(argument, settings) for argument in arguments]
    languages = sorted({each.target_lang for each in outputs_of(systems) if each.target_lang})
    if len(languages) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}: score one language at a time"
        )
    return systems


def outputs_of(systems: Sequence[System]) -> List[Output]:
    """All outputs of all systems."""
    return [output for system in systems for output in system.outputs]


def common_references(outputs: Sequence[Output]) -> List[str]:
    """The one reference that the ``T-`` lines of all outputs hold.

    Raises:
        ConfigurationError: there are none, or they differ.
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


def common_sources(outputs: Sequence[Output]) -> Optional[List[str]]:
    """The one source that the ``S-`` lines of all outputs hold; ``None`` where they hold none.

    **D**: systems of different BPE have different lengths of one sentence, and so no common
    buckets; that is no mistake, so it is ``None`` too, and the caller says it.
    """
    sources = [output.sources for output in outputs]
    return sources[0] if all(each == sources[0] for each in sources) else None


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

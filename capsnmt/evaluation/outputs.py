"""The outputs of the systems to score: which files, and their tokens as text."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Callable, List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.generate_output import parse_generate_output
from capsnmt.evaluation.settings import TextSettings
from capsnmt.evaluation.text import moses_detokenizer, remove_bpe
from capsnmt.evaluation.text_files import read_lines


@dataclass(frozen=True)
class Output:
    """One output of a system, in the order of the test set.

    Attributes:
        label: name for error messages.
        path: file of the output.
        hypotheses: translations as text.
        tokens: translations before detokenisation, without BPE.
        references: ``T-`` lines as text; ``None`` without such lines.
        sources: ``S-`` lines as printed; ``None`` without such lines.
        target_lang: language code, from the settings or from the file.
    """

    label: str
    path: str
    hypotheses: List[str]
    tokens: List[str]
    references: Optional[List[str]]
    sources: Optional[List[str]]
    target_lang: Optional[str]


@dataclass(frozen=True)
class SystemOutputs:
    """A system: its outputs, one for each seed it was trained with."""

    name: str
    outputs: List[Output]


def split_name(argument: str) -> Tuple[str, str]:
    """Split ``NAME=PATHS`` into name and paths; paths without a name are their own name.

    >>> split_name("em=runs/em/test.out"), split_name("runs/em/test.out")
    (('em', 'runs/em/test.out'), ('runs/em/test.out', 'runs/em/test.out'))
    """
    name, separator, path = argument.partition("=")
    if separator and not os.path.exists(argument):
        return name, path
    return argument, argument


def split_paths(paths: str) -> List[str]:
    """Split ``FILE,FILE,FILE``; a file whose name has commas is one file.

    >>> split_paths("seed-1/test.out,seed-2/test.out")
    ['seed-1/test.out', 'seed-2/test.out']
    """
    return [paths] if os.path.exists(paths) else paths.split(",")


def baseline_first(systems: Sequence[str], baseline: Optional[str]) -> List[str]:
    """Return the arguments of all systems, the baseline's first.

    Args:
        systems: ``PATH`` or ``NAME=PATH[,PATH...]`` of each system.
        baseline: one of them, its name, or another argument of this form; ``None`` for no
            baseline.

    Raises:
        ConfigurationError: there is nothing to test against the baseline.
    """
    if baseline is None:
        return list(systems)
    same = [system for system in systems if baseline in (system, *split_name(system))]
    others = [system for system in systems if system not in same[:1]]
    if not others:
        raise ConfigurationError(f"--baseline {baseline} is the only system: give one to test too")
    return [same[0] if same else baseline, *others]


def read_systems(arguments: Sequence[str], settings: TextSettings) -> List[SystemOutputs]:
    """Read all systems.

    Raises:
        ConfigurationError: a system cannot be read, or has an empty name or that of another one.
    """
    names = [split_name(argument)[0] for argument in arguments]
    for name in names:
        if not name.strip() or not name.isprintable():
            raise ConfigurationError(
                f"a system is called {name!r}: give NAME=PATH with a name that can be printed"
            )
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two systems are called {name!r}: give them different names by NAME=PATH"
            )
    return [read_system(argument, settings) for argument in arguments]


def read_system(argument: str, settings: TextSettings) -> SystemOutputs:
    """Read one system.

    Raises:
        ConfigurationError: a file cannot be read, does not match ``settings.input``, or is named
            twice.
    """
    name, argument = split_name(argument)
    paths = split_paths(argument)
    for path in paths:
        if not path:
            raise ConfigurationError(f"{name}={argument}: a path is empty: give NAME=FILE,FILE")
        if paths.count(path) > 1:
            raise ConfigurationError(
                f"{name}: {path} is given twice: give the file of each seed once"
            )
    several = len(paths) > 1
    return SystemOutputs(
        name,
        [read_output(path, f"{name} ({path})" if several else name, settings) for path in paths],
    )


def read_output(path: str, label: str, settings: TextSettings) -> Output:
    """Read one file.

    Args:
        path: the file.
        label: name for error messages.
        settings: how the file becomes text.

    Raises:
        ConfigurationError: the file cannot be read or does not match ``settings.input``.
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


def outputs_of(systems: Sequence[SystemOutputs]) -> List[Output]:
    """Return all outputs of all systems."""
    return [output for system in systems for output in system.outputs]


def _to_text(settings: TextSettings) -> Callable[[str], str]:
    """Return the function from a line of tokens to text."""
    if settings.detokenize == "none":
        return lambda line: remove_bpe(line, settings.remove_bpe).rstrip()
    detokenize = moses_detokenizer(settings.target_lang)
    return lambda line: detokenize(remove_bpe(line, settings.remove_bpe))


def _is_detokenised(hypotheses: Sequence[str], decoded: Optional[Sequence[str]]) -> bool:
    """Return whether fairseq-generate ran a detokeniser, and so on the ``T-`` lines too.

    It did if the ``D-`` lines differ from the ``H-`` lines by more than the removal of BPE.
    """
    if decoded is None:
        return False
    return not any(
        list(decoded) == [remove_bpe(line, kind) for line in hypotheses]
        for kind in ("none", "subword_nmt")
    )

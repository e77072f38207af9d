r"""The outputs of the systems to score: which files, and their tokens as text.

For every sentence fairseq-generate prints tab-separated lines that begin with a letter and the
number of the sentence, in the order of decoding (by length), between log lines::

    S-3     the source                      T-3     the binarised reference
    H-3     -0.41   the hypothesis          D-3     -0.41   H after fairseq's own --bpe, --tokenizer
    P-3     scores of the tokens            H-3 ... for each further hypothesis (--nbest)
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from capsnmt import lines
from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.text import TextFormat, remove_bpe

RECORD = re.compile(r"([STHD])-(\d+)(?:\t|$)")
DICTIONARY = re.compile(r"\| \[([^\]\s]+)\] dictionary: \d+ types")
EXAMPLES = re.compile(r"\| (\S+ \S+ \S+-\S+) (\d+) examples$")
SHOWN = 5  # number of missing sentences that an error names


class SystemFiles(NamedTuple):
    """A system of the command line: its name and its files, one for each seed."""

    name: str
    paths: List[str]


@dataclass(frozen=True, eq=False)
class Output:
    """One output of a system, in the order of the test set.

    Attributes:
        label: name for messages.
        path: file of the output.
        hypotheses: translations as text.
        tokens: translations before detokenisation, without BPE.
        references: ``T-`` lines as text; ``None`` without such lines.
        sources: ``S-`` lines as printed; ``None`` without such lines.
        target_lang: language code, from the flags or from the file.
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


def split_paths(paths: str) -> List[str]:
    """Split ``FILE,FILE,FILE``; a file whose name has commas is one file.

    >>> split_paths("seed-1/test.out,seed-2/test.out")
    ['seed-1/test.out', 'seed-2/test.out']
    """
    return [paths] if os.path.exists(paths) else paths.split(",")


def parse_system(argument: str) -> SystemFiles:
    """Parse ``NAME=FILE,FILE,FILE``; paths without a name are their own name.

    >>> parse_system("em=a.out,b.out")
    SystemFiles(name='em', paths=['a.out', 'b.out'])

    Raises:
        ConfigurationError: the name cannot be printed, or a path is empty or repeated.
    """
    name, separator, files = argument.partition("=")
    if not separator or os.path.exists(argument):
        name = files = argument
    if not name.strip() or not name.isprintable():
        raise ConfigurationError(
            f"a system is called {name!r}: give NAME=PATH with a name that can be printed"
        )
    paths = split_paths(files)
    if not all(paths):
        raise ConfigurationError(f"{argument}: a path is empty: give NAME=FILE,FILE")
    if len(set(paths)) < len(paths):
        raise ConfigurationError(f"{argument}: a file is repeated: give the file of each seed once")
    return SystemFiles(name, paths)


def parse_systems(arguments: Sequence[str], baseline: Optional[str]) -> List[SystemFiles]:
    """Parse all systems, the baseline first.

    Args:
        arguments: ``PATH`` or ``NAME=PATH[,PATH...]`` of each system.
        baseline: one of them, its name, or another argument of this form.

    Raises:
        ConfigurationError: there is nothing to test against the baseline, or two systems have one
            name.
    """
    systems = [parse_system(argument) for argument in arguments]
    if baseline is not None:
        first = next(
            (
                system
                for argument, system in zip(arguments, systems)
                if baseline in (argument, system.name, ",".join(system.paths))
            ),
            None,
        )
        if first is None:
            systems.insert(0, parse_system(baseline))
        else:
            systems.sort(key=lambda system: system is not first)
        if len(systems) == 1:
            raise ConfigurationError(
                f"--baseline {baseline} is the only system: give one to test too"
            )
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(
                f"two systems are called {name!r}: give them different names by NAME=PATH"
            )
    return systems


def read_system(files: SystemFiles, text: TextFormat) -> System:
    """Read the outputs of a system."""
    name, paths = files
    labels = [f"{name} ({path})" for path in paths] if len(paths) > 1 else [name]
    return System(name, [read_output(path, label, text) for path, label in zip(paths, labels)])


def read_output(path: str, label: str, text: TextFormat) -> Output:
    """Read one file; ``label`` is its name for errors.

    Raises:
        ConfigurationError: the file cannot be read or does not match ``text.input``.
    """
    hypotheses = read_lines(path)
    references = sources = None
    if text.input == "generate":
        found, language = parse_generate_output(hypotheses, label)
        hypotheses, references, sources = found["H"], found.get("T"), found.get("S")
        text = replace(text, target_lang=text.target_lang or language)
        if references is not None and not _is_detokenised(hypotheses, found.get("D")):
            references = [*map(text.to_text(), references)]
    return Output(
        label,
        path,
        hypotheses=[*map(text.to_text(), hypotheses)],
        tokens=[remove_bpe(line, text.remove_bpe) for line in hypotheses],
        references=references,
        sources=sources,
        target_lang=text.target_lang,
    )


def read_lines(path: str) -> List[str]:
    """Read the lines of a UTF-8 file, as `capsnmt.lines.read_lines` does.

    Raises:
        ConfigurationError: the file is missing, empty, damaged, or not text in UTF-8.
    """
    text = list(lines.read_lines(Path(path)))
    if not text:
        raise ConfigurationError(f"{path} is empty: nothing to score")
    return text


def parse_generate_output(
    text: Iterable[str], name: str
) -> Tuple[Dict[str, List[str]], Optional[str]]:
    """Parse what fairseq-generate printed; log lines and score lines are skipped.

    Of several hypotheses of a sentence (``--nbest``) the first, which is the best, is kept.

    >>> parse_generate_output(["S-1\\tb", "H-1\\t-1.2\\tB", "S-0\\ta", "H-0\\t-0.3\\tA"], "x")
    ({'H': ['A', 'B'], 'S': ['a', 'b']}, None)

    Args:
        text: lines of the file, without line ends.
        name: name of the file for errors.

    Returns:
        Letter of each kind of line that is there -> its texts, in the order of the test set; and
        the target language, if the log names it.

    Raises:
        ConfigurationError: there is no ``H-`` line, or a sentence is repeated or missing.
    """
    texts: Dict[str, Dict[int, str]] = {kind: {} for kind in "HDTS"}
    language = current = None
    sizes: Dict[str, int] = {}
    for line in text:
        record = RECORD.match(line)
        if not record:
            dictionary, examples = DICTIONARY.search(line), EXAMPLES.search(line)
            if dictionary:  # the source's is logged first
                language = dictionary[1]
            if examples:  # by name, because shards that were decoded separately repeat the line
                sizes[examples[1]] = int(examples[2])
            continue
        kind, number = record[1], int(record[2])
        fields = line.split("\t", 2 if kind in "HD" else 1)
        # further hypotheses of a sentence follow immediately; anything else is a second decoding
        if number in texts[kind] and (kind in "ST" or number != current):
            raise ConfigurationError(
                f"{name}: sentence {number} is repeated ({kind}-{number}): it holds more than "
                "one decoding; score each separately"
            )
        current = number
        # an empty hypothesis may have lost the tab before it to a tool that strips lines
        complete = len(fields) == (3 if kind in "HD" else 2)
        texts[kind].setdefault(number, fields[-1] if complete else "")
    if not texts["H"]:
        raise ConfigurationError(
            f"{name} has no H- lines: not an output of fairseq-generate (for plain text, one "
            "sentence per line, give --input plain)"
        )
    present = {kind: numbered for kind, numbered in texts.items() if numbered}
    count = max(sum(sizes.values()), *(1 + max(numbered) for numbered in present.values()))
    in_order = {
        kind: _in_order(numbered, f"{kind}- line", name, count)
        for kind, numbered in present.items()
    }
    return in_order, language


def _in_order(texts: Dict[int, str], what: str, name: str, count: int) -> List[str]:
    """Return the texts of sentences 0, 1, ..., ``count`` - 1.

    Raises:
        ConfigurationError: a sentence is missing.
    """
    missing = count - len(texts)
    if missing:
        numbers = (number for number in range(count) if number not in texts)
        shown = ", ".join(map(str, islice(numbers, SHOWN))) + (", ..." if missing > SHOWN else "")
        raise ConfigurationError(
            f"{name}: {missing} of the sentences 0..{count - 1} have no {what} ({shown}): decode "
            "the entire test set, with --required-batch-size-multiple 1 (without it some fairseqs "
            "drop the last batch) and without --skip-invalid-size-inputs-valid-test"
        )
    return [texts[number] for number in range(count)]


def _is_detokenised(hypotheses: Sequence[str], decoded: Optional[Sequence[str]]) -> bool:
    """Return whether fairseq-generate ran a detokeniser, and so on the ``T-`` lines too.

    It did if the ``D-`` lines differ from the ``H-`` lines by more than the removal of BPE.
    """
    return decoded is not None and all(
        list(decoded) != [remove_bpe(line, kind) for line in hypotheses]
        for kind in ("none", "subword_nmt")
    )

r"""The settings of an evaluation, and the outputs of the systems: which files, and their text.

For every sentence fairseq-generate prints tab-separated lines that begin with a letter and the
number of the sentence, in the order of decoding (by length), between log lines::

    S-3     the source
    H-3     -0.41   the hypothesis          H-3 ... for each further hypothesis (--nbest)
"""

import os
import re
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from capsnmt import forms, lines
from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.scores import Test
from capsnmt.evaluation.text import REMOVE_BPE, SAME_LANGUAGE, TextFormat, base_language, remove_bpe
from capsnmt.records import as_number

RECORD = re.compile(r"([SH])-(\d+)(?:\t|$)")
LOGGED = re.compile(r"\| \[([^\]\s]+)\] dictionary: \d+ types|\| \S+ \S+ \S+-(\S+) \d+ examples$")
# how subwords are joined: those of a known kind, and others; a model may write unknown words
JOIN: forms.Fixes = {
    **{f"marks of subwords ({kind})": f"give --remove-bpe {kind}" for kind in REMOVE_BPE[1:]},
    forms.UNKNOWN: None,
    forms.LOST: None,  # of a model of bytes
    forms.WRONG: None,  # that it was trained on
}
SET = "{set}"


@dataclass(frozen=True)
class Settings:
    """The settings of an evaluation."""

    systems: Mapping[str, Sequence[str]]  # name -> a file for each seed; the baseline first
    text: TextFormat  # how a file becomes text
    references: Sequence[str]  # raw, one or more
    metrics: Sequence[str]  # keys of METRICS
    tested: bool  # whether the systems are tested against the first
    test: Test
    tokenized_references: Sequence[str] = ()  # without one, both sides are tokenised with Moses
    source: Optional[str] = None  # tokens, for BLEU by length; None: the S- lines
    # metric -> system -> FILE[,FILE...]
    segment_scores: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    compare_mt: Optional[Path] = None  # the folder of compare-mt's report
    test_sets: Sequence[str] = ()  # their names, which take the place of {set} in all paths
    plan: Optional[float] = None  # a difference in BLEU that more seeds are to show
    details: bool = False  # whether all that the record has is printed

    def of(self, test_set: str) -> "Settings":
        """Return the settings of one of several test sets."""

        def named(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: named(each) for key, each in value.items()}
            if isinstance(value, (list, tuple)):
                return [named(each) for each in value]
            return value.replace(SET, test_set) if isinstance(value, str) else value

        of_paths = ("systems", "references", "tokenized_references", "source", "segment_scores")
        paths = {name: named(getattr(self, name)) for name in of_paths}
        return replace(self, test_sets=(), **paths)


@dataclass(frozen=True, eq=False)
class Output:
    """One output of a system, in the order of the test set."""

    label: str  # for messages
    path: str
    hypotheses: List[str]  # translations as text, in NFC as everything that is compared
    tokens: List[str]  # translations before detokenisation, without BPE
    sources: Optional[List[str]]  # the S- lines; None without such lines
    target_lang: Optional[str]  # from the flags or from the log


Systems = Dict[str, List[Output]]  # an output for each seed of a system


def split_paths(paths: str) -> List[str]:
    """Split ``FILE,FILE,FILE``; a file whose name has commas is one file.

    >>> split_paths("seed-1/test.out,seed-2/test.out")
    ['seed-1/test.out', 'seed-2/test.out']
    """
    return [paths] if os.path.exists(paths) else paths.split(",")


def parse_system(argument: str) -> Tuple[str, List[str]]:
    """Parse ``NAME=FILE,FILE,FILE``; paths without a name are their own name.

    >>> parse_system("em=a.out,b.out")
    ('em', ['a.out', 'b.out'])
    """
    name, separator, files = argument.partition("=")
    if not separator or os.path.exists(argument):
        # in a locale without UTF-8 as well, the name of a file is text
        files, name = argument, os.fsencode(argument).decode("utf-8", "backslashreplace")
    if not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{name!r} is no name of a system; give NAME=PATH")
    paths = split_paths(files)
    if not all(paths) or len(set(paths)) < len(paths):
        raise ConfigurationError(
            f"{argument} has an empty or repeated file; give one per seed, of paths without a comma"
        )
    return name, paths


def parse_systems(arguments: Sequence[str], baseline: Optional[str]) -> Dict[str, List[str]]:
    """Return the files of each system by its name, the baseline first.

    ``baseline`` is one of the arguments ``NAME=PATH[,PATH...]``, its name, or another of this form.
    """
    systems = [parse_system(argument) for argument in arguments]
    if baseline is not None:
        known = [{word, name, ",".join(f)} for word, (name, f) in zip(arguments, systems)]
        place = next((place for place, names in enumerate(known) if baseline in names), None)
        first = parse_system(baseline) if place is None else systems.pop(place)
        if not systems:
            raise ConfigurationError(f"--baseline {baseline} is the only system; give another too")
        systems.insert(0, first)
    names = [name for name, _ in systems]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"{name!r} is the name of two systems; give NAME=PATH")
    return dict(systems)


def warn_of_copies(found: Iterable[Tuple[str, Any]], what: str) -> None:
    """Warn of what has the content of another; ``found`` has the name and the content of each."""
    for (first, one), (second, other) in combinations(found, 2):
        if one == other:
            say(f"warning: {second} has the {what} of {first}; is it a copy?")


def read_systems(files: Mapping[str, Sequence[str]], text: TextFormat) -> Systems:
    """Read the outputs of all systems, and check that they are words.

    **D**: an output whose log names no language, as one that was cut, has that of the others: by
    the common rules a perfect translation would score less than one beside it.
    """
    systems: Systems = {}
    for name, paths in files.items():
        labels = [f"{name} ({path})" if len(paths) > 1 else name for path in paths]
        systems[name] = [read_output(*each, text) for each in zip(paths, labels)]
        for output in systems[name]:
            # D: also with --remove-bpe none: subwords have no score of words
            forms.check_words(output.tokens, output.label, "give text without them", JOIN)
    known = {output.target_lang for found in systems.values() for output in found}
    if None in known and len({*map(base_language, known)}) == 2:
        text = replace(text, target_lang=max(filter(None, known)))
        for found in systems.values():
            for place, output in enumerate(found):
                if output.target_lang is None:
                    taken = f"{text.target_lang} is taken, as of the others"
                    say(f"note: {output.label}: no log names its language; {taken}")
                    found[place] = read_output(output.path, output.label, text)
    return systems


def read_output(path: str, label: str, text: TextFormat) -> Output:
    """Read one file; ``label`` is its name for errors."""
    sources = None
    if text.input == "plain":
        hypotheses = read_sentences(path)
    else:
        found, language = parse_generate_output(read_lines(path), label)
        hypotheses, sources = found["H"], found.get("S")
        given, logged = text.target_lang or language, base_language(language)
        # a code of the user's own says nothing
        if logged in SAME_LANGUAGE.values() and logged != base_language(given):
            say(
                f"warning: {label}: its log says that it is in {language}, and --target-lang "
                f"is {given}, whose rules are used; check it"
            )
        text = replace(text, target_lang=given)
    if text.remove_bpe == "sentencepiece" and not any("\u2581" in line for line in hypotheses):
        # D: joining it once more would delete all spaces, and a perfect translation would have 0
        text = replace(text, remove_bpe="none")
        marked = any(mark.search(line) for mark in forms.MARKS.values() for line in hypotheses)
        if any(" " in line for line in hypotheses) and not marked:
            say(
                f"warning: {label} has no marks of sentencepiece (\u2581), so it is taken as "
                f"joined; give --remove-bpe none --detokenize none to say so"
            )
    # joined first: a subword may begin with an accent
    tokens = forms.one_form((remove_bpe(line, text.remove_bpe) for line in hypotheses), label)
    return Output(
        label,
        path,
        hypotheses=[*map(text.detokenizer(), tokens)],
        tokens=tokens,
        sources=sources,
        target_lang=text.target_lang,
    )


def read_lines(path: str) -> List[str]:
    """Read the lines of a UTF-8 file; an empty one is an error."""
    text = list(lines.read_lines(Path(path)))
    if not text:
        raise ConfigurationError(f"{path} is empty; give a file with sentences")
    return text


def read_sentences(path: str) -> List[str]:
    """Read a text of one sentence a line, or the segments of a file that is named as markup."""
    text = read_lines(path)
    reader = forms.read_segments if forms.MARKED.search(path) else forms.plain
    return [*reader(text, path)]


def parse_generate_output(
    text: Iterable[str], name: str
) -> Tuple[Dict[str, List[str]], Optional[str]]:
    """Parse what fairseq-generate printed; log lines, references and score lines are skipped.

    Of several hypotheses of a sentence (``--nbest``) the best, the first unless sorted, is kept.

    >>> parse_generate_output(["S-1\\tb", "H-1\\t-1.2\\tB", "S-0\\ta", "H-0\\t-0.3\\tA"], "x")
    ({'H': ['A', 'B'], 'S': ['a', 'b']}, None)

    Returns:
        Letter of each kind of line that is there -> its texts, in the order of the test set; and
        the target language, if the log names it.
    """
    texts: Dict[str, Dict[int, str]] = {kind: {} for kind in "HS"}
    languages: List[str] = []
    targets: List[str] = []
    current, best = None, 0.0
    for line in text:
        record = RECORD.match(line)
        if not record:
            logged = LOGGED.search(line)
            if logged:
                (languages if logged[1] else targets).append(logged[1] or logged[2])
            continue
        kind, number = record[1], int(record[2])
        fields = line.split("\t", 2 if kind == "H" else 1)
        # further hypotheses of a sentence follow immediately; anything else is a second decoding
        if number in texts[kind] and (kind != "H" or number != current):
            raise ConfigurationError(
                f"{name} repeats sentence {number} ({kind}-{number}); give one decoding per file"
            )
        score = as_number(fields[1]) if kind == "H" and fields[1:] else 0.0
        if not isinstance(score, float):  # its text would be lost
            raise ConfigurationError(
                f"{name}: H-{number} has no score before its text; give the log as fairseq wrote it"
            )
        # an empty hypothesis may have lost the tab before it to a tool that strips lines
        complete = len(fields) == (3 if kind == "H" else 2)
        if number not in texts[kind] or score > best:  # sort -V puts -0.3 before -0.25
            texts[kind][number], best = fields[-1] if complete else "", score
        current = number
    if not texts["H"]:
        raise ConfigurationError(
            f"{name} has no H- lines of fairseq-generate; for one sentence per line, give "
            "--input plain"
        )
    present = {kind: numbered for kind, numbered in texts.items() if numbered}
    count = 1 + max(map(max, present.values()))
    for kind, numbered in present.items():
        if len(numbered) < count:
            first = next(number for number in range(count) if number not in numbered)
            raise ConfigurationError(
                f"{name} lacks {count - len(numbered)} of {count} {kind}- lines, {kind}-{first} "
                "first; decode the entire test set, with --required-batch-size-multiple 1 (without "
                "it some fairseqs drop the last batch) and without "
                "--skip-invalid-size-inputs-valid-test"
            )
    # the source's is logged first, unless lines were sorted; a model of many logs all of them
    found = [each for each in (*targets, *languages[-1:]) if each in languages]
    language = found[0] if 0 < len({*languages}) < 3 else None
    return {kind: [of[n] for n in range(count)] for kind, of in present.items()}, language

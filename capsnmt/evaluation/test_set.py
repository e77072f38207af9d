"""What all outputs are compared with: the reference, its language, and the source."""

import re
from dataclasses import dataclass
from itertools import chain, permutations
from typing import List, Optional, Sequence, Tuple

from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation.outputs import Output, Settings, read_lines, read_sentences, warn_of_copies
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language
from capsnmt.forms import (
    END_APART,
    END_JOINED,
    ESCAPED,
    MARKED,
    check_order,
    check_words,
    one_form,
    plain,
    read_texts,
)
from capsnmt.lines import blank_lines

# so many sentences with a space before their end, or half of few, are tokens: sacreBLEU's limit
TOKENISED = 100
MORE = 10  # times as many such lines, or lines with escapes, are those of another form
LONG = 15  # characters on average: what spaces separate are no words, as of Thai
IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff]")  # with kana


@dataclass(frozen=True)
class TestSet:
    """A test set, whose sentences all outputs translate."""

    __test__ = False  # no class of tests, whatever pytest reads in its name

    names: List[str]  # of the references
    references: List[List[str]]  # of each, the segments as text
    target_lang: Optional[str]
    length_unit: str  # what a source length counts
    source: Optional[List[str]]  # tokens, separated by spaces; None without a common source
    tokens: List[List[str]]  # the tokenised references; empty to tokenise the references


def read_test_set(outputs: Sequence[Output], settings: Settings) -> TestSet:
    """Read the test set, and check that all outputs translate it."""
    languages = sorted({each.target_lang for each in outputs if each.target_lang})
    if len({*map(base_language, languages)}) > 1:
        raise ConfigurationError(
            f"the systems translate into {' and '.join(languages)}; score one language at a time"
        )
    files = (*settings.references, settings.source, *(each.path for each in outputs))
    check_order({path: read_lines(path) for path in files if path and MARKED.search(path)})
    named = _read_references(settings.references, "", "give the raw reference")
    names = [name for name, _ in named]
    references = [[line.rstrip() for line in lines] for _, lines in named]
    tokens = _read_references(
        settings.tokenized_references, "--tokenized-reference ", "give its tokens without them"
    )
    name, segments = names[0], len(references[0])
    for each, lines in zip(names, references):
        blank = blank_lines(lines, each)
        if blank:
            say(f"warning: {blank} of the {len(lines)} segments of the reference {each} are blank")
    language = next(iter(languages), None)
    known = sum(map(bool, map(IDEOGRAPHS.search, references[0])))
    if (known > segments / 2) != (base_language(language) in WITHOUT_SPACES):
        say(
            f"warning: {known:,} of {segments:,} segments of the reference {name} have Chinese or "
            f"Japanese characters, and the language is {language or 'not known'}, by which BLEU "
            f"and TER tell words apart; check --target-lang"
        )
    words = " ".join(references[0]).split()
    if known <= segments / 2 and len("".join(words)) > LONG * len(words):
        say(
            f"warning: what spaces separate in the reference {name} is longer than words, {LONG} "
            f"characters and more, and BLEU, chrF2++ and TER take it for words; set the words of "
            f"both sides apart, or compare by chrF2"
        )
    source = None
    texts = [(each.label, each.hypotheses) for each in outputs]
    texts += [*named[1:], *tokens]
    if settings.source is not None:
        source = one_form(read_sentences(settings.source), settings.source)
        texts.append((f"--source {settings.source}", source))
    for what, lines in texts:
        check_count(what, lines, name, references[0])
    for output in outputs:
        empty = sum(not line for line in output.hypotheses)
        if empty:
            say(f"warning: {empty} of the {segments} translations of {output.label} are empty")
        _compare_forms(output.label, output.hypotheses, named)
        if tokens:
            _compare_forms(f"{output.label} as tokens", output.tokens, tokens)
    translations = [(each.label, each.hypotheses) for each in outputs]
    texts, plain_text = [*zip(names, references)], outputs[0].sources is None
    # a decoding may be perfect, as of a made-up task
    for group in [translations + texts] if plain_text else [translations, texts]:
        warn_of_copies(group, "text")
    return TestSet(
        names,
        references,
        language,
        f"the tokens of {settings.source or 'the S- lines'}",
        source or _source_lines(outputs),
        [lines for _, lines in tokens],
    )


def _read_references(paths: Sequence[str], flag: str, fix: str) -> List[Tuple[str, List[str]]]:
    """Return name and segments of each reference; a file of markup may have several."""
    found: List[Tuple[str, List[str]]] = []
    for path in paths:
        lines = read_lines(path)
        if not MARKED.search(path):
            texts = {"": [*plain(lines, path)]}
        elif not (texts := read_texts(lines, path)[1]):
            raise ConfigurationError(
                f"{path}: no <seg> element of a reference; give one that has them"
            )
        for label, text in texts.items():
            name = f"{flag}{path} ({label})" if len(texts) > 1 else f"{flag}{path}"
            found.append((name, one_form(text, name)))
            check_words(found[-1][1], name, fix)
    return found


def _compare_forms(
    label: str, translations: Sequence[str], references: Sequence[Tuple[str, List[str]]]
) -> None:
    """Warn if one of both sides is of tokens, escaped or in lower case, and the other is not."""
    names, texts = zip(*references)
    sides = [(label, translations), (", ".join(names), [*chain(*texts)])]
    for (name, lines), (other, others) in permutations(sides):
        ends, theirs = ([*filter(END_APART.search, text)] for text in (lines, others))
        many = len(ends) >= min(TOKENISED, len(lines) / 2)
        # D: an untrained model ends no sentence in either form, which tells nothing
        if many and MORE * len(theirs) < min(len(ends), len([*filter(END_JOINED.search, others)])):
            say(
                f"warning: {len(ends)} of {len(lines)} lines of {name} end in "
                f"{ends[0][-2:]!r}, and {len(theirs)} of "
                f"{other}: one is of tokens, the other of text; give both in one form"
            )
        escaped, theirs = ([*filter(ESCAPED.search, text)] for text in (lines, others))
        if len(escaped) > MORE * (len(theirs) + 1):
            say(
                f"warning: {len(escaped)} of {len(lines)} lines of {name} have escapes as "
                f"{ESCAPED.findall(escaped[0])[0]}, and {len(theirs)} of {other}: give both without"
            )
        capitals = sum(line != line.lower() for line in others)
        if "".join(lines).islower() and capitals > len(others) / 2:
            say(
                f"warning: {name} has no capital letter, and {other} has some in {capitals} of "
                f"{len(others)} lines: scores are case-sensitive; give both in one form"
            )


def check_count(
    name: str, segments: Sequence[str], reference: str, expected: Sequence[str]
) -> None:
    """Raise unless a text has as many segments as the reference, whose name is ``reference``."""
    if len(segments) != len(expected):
        raise ConfigurationError(
            f"{name} has {len(segments)} segments, but the reference {reference} has "
            f"{len(expected)}; give the same test set"
        )


def _source_lines(outputs: Sequence[Output]) -> Optional[List[str]]:
    """Return the ``S-`` lines of all outputs; ``None`` if they differ or there are none.

    **D**: systems with different BPE have different lengths of a sentence, and so no common
    buckets. This is a warning, not an error.
    """
    source = outputs[0].sources
    if all(each.sources == source for each in outputs):
        return None if source is None else one_form(source, f"the S- lines of {outputs[0].label}")
    say("warning: the systems' S- lines differ (another BPE?): BLEU by length needs --source FILE")
    return None

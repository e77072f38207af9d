"""Forms of text: what a line may be besides plain text, how it is recognised, and what to do.

Every reader of text asks here: preparation, translation, evaluation, probing. docs/data.md, "Forms
of text", says what each of them does with each form.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from types import MappingProxyType
from typing import Dict, Iterable, Iterator, List, Mapping, Optional

from capsnmt.cli import ConfigurationError, say, shown

# Marks of subwords, with the flag that joins them; a text of words has none, or hardly any.
MARKS = {
    "subword_nmt": re.compile(r"\S@@(?= |$)"),
    "sentencepiece": re.compile("\u2581"),
    # the hyphen of published tokens is none: rich ##AT##-##AT## text
    "wordpiece": re.compile(r"(?<=\S )##(?!AT##)\w"),
    "BPE with end marks": re.compile(r"\S</w>(?= |$)"),
}
# symbols of a dictionary, which a model would not take for text
SYMBOLS = re.compile(r"(?:^|(?<= ))(?:</?s>|<pad>)(?= |$)")
UNKNOWN = "unknown words (<unk>)"
LOST = "characters that a conversion lost (U+FFFD)"
NO_WORDS = {
    **{f"marks of subwords ({kind})": pattern for kind, pattern in MARKS.items()},
    "symbols of a dictionary": SYMBOLS,
    UNKNOWN: re.compile("<unk>"),  # fairseq-generate writes <<unk>> in references
    LOST: re.compile("\ufffd"),
    "tabs, as a table has": re.compile(r"\S {0,9}\t\s{0,9}\S"),
}
# a line without these has none of them: most of a corpus is asked only once
SUSPECT = re.compile("@@|\u2581|##|<|\t|\ufffd")
# the beginning of a file of markup, which is no text of one sentence a line
MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|tmx|xliff|srcset|refset|tstset|mteval|dataset|doc|html)\b", re.I
)
# D: so large a share of lines is no accident: such a text cannot be used as it is
SHARE = 0.1
Fixes = Mapping[str, Optional[str]]  # a key of NO_WORDS -> what mends it
NO_FIXES: Fixes = MappingProxyType({})

# names of files of segments in elements, as test sets are published
MARKED = re.compile(r"\.(sgml?|xml)(\.gz)?$")


@dataclass
class Found:
    """A form that some lines of a text have."""

    form: str
    number: int  # of the first of these lines
    example: str  # that line
    count: int = 0


class Words:
    """What of a text of words, seen line by line, is none."""

    def __init__(self) -> None:
        self.lines = 0
        self.found: Dict[str, Found] = {}

    def see(self, line: str, *others: str) -> None:
        """Take note of a line; ``others`` are forms that only the caller can see."""
        self.lines += 1
        forms = [*others]
        if SUSPECT.search(line):
            forms += [form for form, pattern in NO_WORDS.items() if pattern.search(line)]
        for form in forms:
            self.found.setdefault(form, Found(form, self.lines, line)).count += 1

    def check(self, name: str, fix: str, fixes: Fixes = NO_FIXES) -> None:
        """Warn of what was found, or refuse it where it is in many lines.

        ``fix`` mends it; ``fixes`` has that of a form, or ``None`` where any number of lines may
        have the form.
        """
        for form, found in self.found.items():
            how = fixes.get(form, fix)
            if how is not None and found.count > SHARE * self.lines:
                raise ConfigurationError(f"{name}: {self._in_words(found)}; {how}")
        self.warn(name, fix, fixes)

    def warn(self, name: str, fix: str, fixes: Fixes = NO_FIXES) -> None:
        """Warn of what was found, however much that is."""
        for form, found in self.found.items():
            how = fixes.get(form, fix)
            advice = "" if how is None else f"; {how} if they are not text"
            say(f"warning: {name}: {self._in_words(found)}{advice}")

    def _in_words(self, found: Found) -> str:
        return (
            f"{found.count:,} of {self.lines:,} lines have {found.form}, as line "
            f"{found.number:,}: {shown(found.example[:60])}"
        )


def check_words(lines: Iterable[str], name: str, fix: str, fixes: Fixes = NO_FIXES) -> None:
    """Warn of what in a text of words is none, or refuse it, as `Words.check` does."""
    words = Words()
    for line in lines:
        words.see(line)
    words.check(name, fix, fixes)


def plain(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the lines of a text of one sentence a line; raise if it begins as markup."""
    begun = False
    for line in lines:
        if not begun and MARKUP.match(line):
            raise ConfigurationError(
                f"{name}: begins with {shown(line[:40])}, so it is markup and no text; name it "
                f".sgm or .xml if it is a test set of <seg> elements, or give a file of each "
                f"language, one sentence a line"
            )
        begun = begun or bool(line.strip())
        yield line


def one_form(lines: Iterable[str], name: str) -> List[str]:
    """Return lines in Unicode's form NFC, as models are trained; say how many were not.

    Letters with marks can be one character or several: equal for a reader, and not for a metric.
    """
    text = list(lines)
    composed = [unicodedata.normalize("NFC", line) for line in text]
    changed = sum(old != new for old, new in zip(text, composed))
    if changed:
        say(
            f"note: {name}: {changed:,} of {len(text):,} lines are not in Unicode's NFC; they are "
            f"compared in it"
        )
    return composed

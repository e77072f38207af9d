"""Forms of text: what a line may be besides plain text, how it is recognised, and what to do.

Every reader of text asks here: preparation, translation, evaluation, probing. docs/data.md, "Forms
of text", says what each of them does with each form.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Dict, Iterable, List

from capsnmt.cli import ConfigurationError, say, shown

# Marks of subwords, with the flag that joins them; a text of words has none, or hardly any.
MARKS = {
    "subword_nmt": re.compile(r"\S@@(?= |$)"),
    "sentencepiece": re.compile("\u2581"),
    "wordpiece": re.compile(r"(?<=\S )##\w"),
    "BPE with end marks": re.compile(r"\S</w>(?= |$)"),
}
# symbols of a dictionary, which a model would not take for text
SYMBOLS = re.compile(r"(?:^|(?<= ))(?:</?s>|<pad>|<unk>)(?= |$)")
# the beginning of a file of markup, which is no text of one sentence a line
MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|tmx|xliff|srcset|refset|tstset|mteval|dataset|doc|html)\b", re.I
)
# D: so large a share of lines is no accident: such a text cannot be used as it is
SHARE = 0.1


@dataclass(frozen=True)
class Found:
    """A form that some lines of a text have."""

    form: str
    count: int  # of lines
    lines: int  # of the text
    number: int  # of the first of them
    example: str  # that line

    def __str__(self) -> str:
        return (
            f"{self.count:,} of {self.lines:,} lines have {self.form}, as line {self.number:,}: "
            f"{shown(self.example[:60])}"
        )


def find(lines: Iterable[str], forms: Dict[str, re.Pattern[str]]) -> List[Found]:
    """Return which of some forms, by their patterns, a text has."""
    text = list(lines)
    found = []
    for form, pattern in forms.items():
        numbers = [number for number, line in enumerate(text, 1) if pattern.search(line)]
        if numbers:
            first = numbers[0]
            found.append(Found(form, len(numbers), len(text), first, text[first - 1]))
    return found


def check_words(lines: List[str], name: str, fix: str) -> None:
    """Warn of marks of subwords and symbols of dictionaries in a text of words; refuse many.

    ``fix`` says how the text is joined.
    """
    forms = {f"marks of subwords ({kind})": pattern for kind, pattern in MARKS.items()}
    for found in find(lines, {**forms, "symbols of a dictionary": SYMBOLS}):
        if found.count > SHARE * found.lines:
            raise ConfigurationError(f"{name}: {found}; {fix}")
        say(f"warning: {name}: {found}; {fix} if they are not text")


def check_plain(first_line: str, name: str) -> None:
    """Raise if a file of one sentence a line begins as markup."""
    if MARKUP.match(first_line):
        raise ConfigurationError(
            f"{name}: begins with {shown(first_line[:40])}, so it is markup and no text; name it "
            f".sgm or .xml if it has <seg> elements, or give one sentence a line"
        )


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

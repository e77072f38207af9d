"""LibreOffice's help: pages of HTML, whose paragraphs have the same ids in every language."""

from __future__ import annotations

import html
import re
from typing import Dict, Iterable, Iterator, Sequence, Tuple

PARAGRAPH = re.compile(
    r'<(p|h[1-6])\b[^>]*?\bid="((?:par|hd)_[^"]*)"[^>]*>(.*?)</\1>', re.DOTALL | re.IGNORECASE
)
# "Command" of "Command" or "Ctrl": a script shows the variant of the reader's system
VARIANT = re.compile(r'<span hidden="true" id="(?!default).*?(?=<span hidden="true" id="default)')
HIDDEN = re.compile(r'<span hidden="true" id="(?!default)')
TAG = re.compile(r"<[^>]*>")
ENGLISH = re.compile(r'<html[^>]*\blang="en\b')
LEAST_WORDS = 4  # of English


def read_page(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the paragraphs of a page: id, tab, sentence.

    **D**: of a text with variants, such as "Command" or "Ctrl", the default stays, and a paragraph
    without a default goes. So does an id of two texts, and English of fewer than four words, which
    is mostly the name of a command.
    """
    page = " ".join(text)
    least = LEAST_WORDS if ENGLISH.search(page) else 1
    found: Dict[str, str] = {}
    for _, key, content in PARAGRAPH.findall(page):
        content = VARIANT.sub("", content)
        sentence = " ".join(html.unescape(TAG.sub("", content.replace("<br>", " "))).split())
        again = found.setdefault(key, sentence) != sentence
        if again or HIDDEN.search(content) or len(sentence.split()) < least:
            found[key] = ""
    return (f"{key}\t{sentence}" for key, sentence in found.items() if sentence)


def joined(pages: Sequence[Iterable[str]]) -> Iterator[Tuple[str, ...]]:
    """Yield the sentences that have one id in all languages of a page, in the first one's order.

    **D**: sentences that are equal are not translated, and left out.

    >>> [*joined([["a\\tRows", "b\\tName", "c\\tCells"], ["c\\tZellen", "b\\tName"]])]
    [('Cells', 'Zellen')]
    """
    first, *others = (dict(line.split("\t", 1) for line in page) for page in pages)
    for key, sentence in first.items():
        row = (sentence, *(other.get(key, "") for other in others))
        if all(row) and len({*row}) == len(row):
            yield row

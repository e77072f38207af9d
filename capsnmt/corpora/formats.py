"""Readers of the formats of parallel corpora: each yields the sentences of one language.

A reader takes the lines of a file, its name for errors, and the column of a table.
"""

import html
import re
from itertools import zip_longest
from typing import Callable, Dict, Iterable, Iterator, Sequence, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archives import Text
from capsnmt.evaluation.text import remove_bpe
from capsnmt.forms import plain, read_segments, read_texts
from capsnmt.lines import read_lines

# Some programs end a line at these, which would shift one side of a corpus: they become spaces.
FALSE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Metadata of a talk in IWSLT's training files, one element a line between the sentences.
TALK = re.compile(
    r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript"
    r"|refset|srcset|mteval)\b",
    re.IGNORECASE,
)
TITLE = re.compile(r"</?(?:title|description)>", re.IGNORECASE)
# LibreOffice's help: pages of HTML, whose paragraphs have the same ids in every language
PARAGRAPH = re.compile(
    r'<(p|h[1-6])\b[^>]*?\bid="((?:par|hd)_[^"]*)"[^>]*>(.*?)</\1>', re.DOTALL | re.IGNORECASE
)
# "Command" of "Command" or "Ctrl": a script shows the variant of the reader's system
VARIANT = re.compile(r'<span hidden="true" id="(?!default).*?(?=<span hidden="true" id="default)')
HIDDEN = re.compile(r'<span hidden="true" id="(?!default)')
TAG = re.compile(r"<[^>]*>")
ENGLISH = re.compile(r'<html[^>]*\blang="en\b')
LEAST_WORDS = 4  # of English
Reader = Callable[[Iterable[str], str, int], Iterator[str]]


def read_talks(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags`` files.

    D: lines that begin with a tag (``<url>``, ``<keywords>``, ``<title>``, ...) describe the talk
    and are dropped.
    """
    return (line.strip() for line in text if not TALK.match(line))


def read_columns(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield one column, counted from 1, of a tab-separated file such as News Commentary v14."""
    for number, line in enumerate(text, 1):
        columns = line.split("\t")
        if not line.strip():  # between two articles
            columns = [""] * column
        if len(columns) < column:
            raise ConfigurationError(
                f"{name}, line {number}: {len(columns)} column{'s' * (len(columns) > 1)}, column "
                f"{column} is needed; separate the sentences of a pair by a tab"
            )
        yield columns[column - 1]


def read_column_of_texts(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield one text of WMT's XML or of SGM: the source, if it has one, and its references."""
    source, references = read_texts(text, name)
    texts = [*([source] if source else []), *references.values()]
    if len(texts) < column:
        raise ConfigurationError(
            f"{name} has {len(texts)} texts, text {column} is needed; give the recipe's version"
        )
    yield from texts[column - 1]


def read_page(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the paragraphs of a page of LibreOffice's help: id, tab, sentence.

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


FORMATS: Dict[str, Reader] = {
    # one sentence a line, as Moses and OPUS align
    "plain": lambda text, name, column: plain(text, name),
    # D: escapes of Moses' tokeniser (&apos; &#124; ...) become characters: an evaluation would
    # count them as words.
    "moses": lambda text, name, column: map(html.unescape, text),
    # segmented by subword-nmt
    "subwords": lambda text, name, column: (remove_bpe(line, "subword_nmt") for line in text),
    "sgm": lambda text, name, column: read_segments(text, name),
    "iwslt-xml": lambda text, name, column: read_segments(text, name),
    "wmt-xml": read_column_of_texts,
    "iwslt-tags": read_talks,
    # the same with titles and descriptions: fairseq's prepare-iwslt14.sh keeps them
    "iwslt-titles": lambda text, name, column: read_talks(
        (TITLE.sub("", line) for line in text), name, column
    ),
    "tsv": read_columns,
    "libreoffice-help": read_page,
}
OF_SEGMENTS = ("sgm", "iwslt-xml", "wmt-xml")
# formats of pages, whose paragraphs are aligned by their ids
PAGES = ("libreoffice-help",)


def read_text(text: Text, kind: str, column: int) -> Iterator[str]:
    """Yield the sentences of a file in a format of `FORMATS`."""
    lines = (FALSE_ENDS.sub(" ", line) for line in read_lines(text.path, text.name))
    for sentence in FORMATS[kind](lines, text.name, column):
        yield FALSE_ENDS.sub(" ", sentence)  # that were escaped


def aligned(texts: Sequence[Iterable[str]], names: Sequence[object]) -> Iterator[Tuple[str, ...]]:
    """Yield the same sentence of line-aligned streams, which errors call ``names``."""
    streams = [*map(iter, texts)]
    for number, sentences in enumerate(zip_longest(*streams)):
        if None in sentences:
            shorter = sentences.index(None)
            longer = next(place for place, each in enumerate(sentences) if each is not None)
            raise ConfigurationError(
                f"{names[shorter]} has {number:,} lines but {names[longer]} has "
                f"{number + 1 + sum(1 for _ in streams[longer]):,}; a parallel corpus needs as "
                f"many lines on both sides; give two files of one version"
            )
        yield sentences


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

"""Readers of the formats of parallel corpora: each yields the sentences of one language.

A reader takes the lines of a file, its name for errors, and the column of a table.
"""

from __future__ import annotations

import html
import re
from itertools import zip_longest
from typing import Callable, Dict, Iterable, Iterator, List, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archives import Text
from capsnmt.evaluation.text import remove_bpe
from capsnmt.forms import plain
from capsnmt.lines import read_lines

# Some programs end a line at these, which would shift one side of a corpus: they become spaces.
FALSE_ENDS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
# what begins segments of one reference, or of another text: a document of SGM, a side of WMT's XML
REFERENCE = re.compile(r"<(refset|doc|src|ref|hyp)\b([^>]*)>", re.IGNORECASE)
LABEL = re.compile(r"""\b(refid|sysid|translator)\s*=\s*["']([^"']*)""")
# Metadata of a talk in IWSLT's training files, one element a line between the sentences.
TALK = re.compile(
    r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript"
    r"|refset|srcset|mteval)\b",
    re.IGNORECASE,
)
TITLE = re.compile(r"</?(?:title|description)>", re.IGNORECASE)
Reader = Callable[[Iterable[str], str, int], Iterator[str]]


def read_segments(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because not all of these files are well-formed (some have a bare ``&``).
    Entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines.
    """
    pending, segments = "", 0
    for line in text:
        pending = f"{pending} {line}" if pending else line
        end = 0
        for match in SEGMENT.finditer(pending):
            segments += 1
            end = match.end()
            yield " ".join(html.unescape(match[1]).split())
        opened = OPENED.search(pending, end)
        pending = pending[opened.start() :] if opened else ""
    if pending or not segments:
        what = f"segment {segments + 1} does not end" if pending else "no <seg> element"
        raise ConfigurationError(f"{name}: {what}; give a complete file of SGM or IWSLT XML")


def read_references(text: Iterable[str], name: str) -> Dict[str, List[str]]:
    """Return the references in NIST's SGM or WMT's XML: the segments of each, in the file's order.

    Their names are the translators' of WMT's XML, whose source and system outputs are skipped, or
    the ``refid`` and ``sysid`` of SGM.
    """
    found: Dict[str, List[str]] = {}
    parts = ["", "", *REFERENCE.split("\n".join(text))]
    side, of_set, of_text = "", "", ""
    for tag, attributes, content in zip(parts[::3], parts[1::3], parts[2::3]):
        label = dict(LABEL.findall(attributes))
        if tag.lower() == "refset":
            side, of_set, of_text = "", label.get("refid", ""), ""
        elif tag:
            side, of_text = tag.lower(), label.get("sysid") or label.get("translator", "")
        if side not in ("src", "hyp") and OPENED.search(content):
            segments = read_segments(content.split("\n"), name, 0)
            found.setdefault(f"{of_set} {of_text}".strip(), []).extend(segments)
    if not found:
        raise ConfigurationError(f"{name}: no <seg> element of a reference; give one that has them")
    return found


def read_talks(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags`` files.

    D: lines that begin with a tag (``<url>``, ``<keywords>``, ``<title>``, ...) describe the talk
    and are dropped.
    """
    return (line.strip() for line in text if not TALK.match(line))


def read_talks_with_titles(text: Iterable[str], name: str, column: int) -> Iterator[str]:
    """Yield the same, with titles and descriptions: fairseq's ``prepare-iwslt14.sh`` keeps them."""
    return read_talks((TITLE.sub("", line) for line in text), name, column)


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


FORMATS: Dict[str, Reader] = {
    # one sentence a line, as Moses and OPUS align
    "plain": lambda text, name, column: plain(text, name),
    # D: escapes of Moses' tokeniser (&apos; &#124; ...) become characters: an evaluation would
    # count them as words.
    "moses": lambda text, name, column: map(html.unescape, text),
    # segmented by subword-nmt
    "subwords": lambda text, name, column: (remove_bpe(line, "subword_nmt") for line in text),
    "sgm": read_segments,
    "iwslt-xml": read_segments,
    "iwslt-tags": read_talks,
    "iwslt-titles": read_talks_with_titles,
    "tsv": read_columns,
}


def read_text(text: Text, kind: str, column: int) -> Iterator[str]:
    """Yield the sentences of a file in a format of `FORMATS`."""
    lines = (FALSE_ENDS.sub(" ", line) for line in read_lines(text.path, text.name))
    for sentence in FORMATS[kind](lines, text.name, column):
        yield FALSE_ENDS.sub(" ", sentence)  # that were escaped


def aligned(
    source: Iterable[str], target: Iterable[str], names: Tuple[object, object]
) -> Iterator[Tuple[str, str]]:
    """Yield the sentence pairs of two line-aligned streams, which errors call ``names``."""
    both = zip_longest(source, target)
    for number, (left, right) in enumerate(both):
        if left is None or right is None:
            shorter, longer = names if left is None else names[::-1]
            raise ConfigurationError(
                f"{shorter} has {number:,} lines but {longer} has "
                f"{number + 1 + sum(1 for _ in both):,}; a parallel corpus needs as many lines on "
                f"both sides; give two files of one version"
            )
        yield left, right

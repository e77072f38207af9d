"""The formats of parallel corpora: each gives the sentences of one language, one a line."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from data_prep.errors import PreparationError
from data_prep.files import read_lines

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
LONGEST_SEGMENT = 1 << 20  # characters
# What IWSLT's training files say about a talk between its sentences, each on a line of its own.
TALK = re.compile(
    r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript"
    r"|refset|srcset|mteval)\b",
    re.IGNORECASE,
)
Reader = Callable[[Path, str, int], Iterator[str]]


def read_plain(path: Path, encoding: str, column: int) -> Iterator[str]:
    """Yield the lines of a text file, as Moses and OPUS align them: one sentence a line."""
    return read_lines(path, encoding)


def read_moses(path: Path, encoding: str, column: int) -> Iterator[str]:
    """Yield the lines of a text that Moses' tokeniser has escaped, without its escapes.

    D: ``&apos;`` and the like become characters again: an evaluation would count them as words.
    """
    # The pipe and the brackets are numeric references, which html.unescape knows too.
    return map(html.unescape, read_lines(path, encoding))


def read_segments(path: Path, encoding: str, column: int) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because neither is always well-formed XML (``&`` stands for itself in some);
    entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines.

    Raises:
        PreparationError: the file has no segment, or one that does not end.
    """
    pending, segments = "", 0
    for line in read_lines(path, encoding):
        pending = f"{pending} {line}" if pending else line
        end = 0
        for match in SEGMENT.finditer(pending):
            segments += 1
            end = match.end()
            yield " ".join(html.unescape(match[1]).split())
        opened = OPENED.search(pending, end)
        pending = pending[opened.start() :] if opened else ""
        if len(pending) > LONGEST_SEGMENT:
            break
    if pending or not segments:
        what = f"segment {segments + 1} does not end" if pending else "no <seg> element"
        raise PreparationError(f"{path}: {what}: it is damaged, or not SGM or IWSLT XML")


def read_talks(path: Path, encoding: str, column: int) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags`` files.

    D: lines that begin with a tag (``<url>``, ``<keywords>``, ``<title>``, ...) are about the
    talk and are dropped; fairseq's script keeps the text of titles and descriptions.
    """
    return (line.strip() for line in read_lines(path, encoding) if not TALK.match(line))


def read_columns(path: Path, encoding: str, column: int) -> Iterator[str]:
    """Yield column `column`, from 1, of a tab-separated file such as News Commentary's from v14.

    Raises:
        PreparationError: a line has fewer columns.
    """
    for number, line in enumerate(read_lines(path, encoding), 1):
        columns = line.split("\t")
        if not line.strip():  # between two articles
            columns = [""] * column
        if len(columns) < column:
            raise PreparationError(
                f"{path}, line {number}: {len(columns)} columns, column {column} is needed: "
                f"it is not the recipe's TSV, or damaged"
            )
        yield columns[column - 1]


FORMATS: dict[str, Reader] = {
    "plain": read_plain,
    "moses": read_moses,
    "sgm": read_segments,
    "iwslt-xml": read_segments,
    "iwslt-tags": read_talks,
    "tsv": read_columns,
}

"""The formats of parallel corpora: each gives the sentences of one language, one a line.

Every reader takes the lines of a file, its path and how many lines came before these, for what it
says of an error, and the column of a table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from capsnmt.corpora.lines import read_lines
from capsnmt.errors import ConfigurationError

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
LONGEST_SEGMENT = 1 << 20  # characters
# What IWSLT's training files say about a talk between its sentences, each on a line of its own.
TALK = re.compile(
    r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc|transcript"
    r"|refset|srcset|mteval)\b",
    re.IGNORECASE,
)
Reader = Callable[[Iterable[str], Path, int, int], Iterator[str]]


def read_plain(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the lines of a text file, as Moses and OPUS align them: one sentence a line."""
    return iter(lines)


def read_moses(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the lines of a text that Moses' tokeniser has escaped, without its escapes.

    D: ``&apos;`` and the like become characters again: an evaluation would count them as words.
    """
    # The pipe and the brackets are numeric references, which html.unescape knows too.
    return map(html.unescape, lines)


def read_segments(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because neither is always well-formed XML (``&`` stands for itself in some);
    entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines.

    Raises:
        ConfigurationError: the file has no segment, or one that does not end.
    """
    pending, segments = "", 0
    for line in lines:
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
        raise ConfigurationError(f"{path}: {what}: it is damaged, or not SGM or IWSLT XML")


def read_talks(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the sentences of IWSLT's ``train.tags`` files.

    D: lines that begin with a tag (``<url>``, ``<keywords>``, ``<title>``, ...) are about the
    talk and are dropped; fairseq's script keeps the text of titles and descriptions.
    """
    return (line.strip() for line in lines if not TALK.match(line))


def read_columns(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield column `column`, from 1, of a tab-separated file such as News Commentary's from v14.

    Raises:
        ConfigurationError: a line has fewer columns.
    """
    for number, line in enumerate(lines, before + 1):
        columns = line.split("\t")
        if not line.strip():  # between two articles
            columns = [""] * column
        if len(columns) < column:
            raise ConfigurationError(
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
# Those that have a sentence on every line, whatever stands on the others.
LINE_BY_LINE = {"plain", "moses", "tsv"}


def read_text(path: Path, kind: str, encoding: str, column: int) -> Iterator[str]:
    """Yield the sentences of a file in the format `kind`.

    Args:
        path: the file, plain or gzipped.
        kind: a key of `FORMATS`.
        encoding: of the text.
        column: from 1, of a ``tsv``.

    Raises:
        ConfigurationError: the file is missing, damaged, or not in that format or encoding.
    """
    return FORMATS[kind](read_lines(path, encoding), path, column, 0)

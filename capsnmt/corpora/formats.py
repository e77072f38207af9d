"""Readers of the formats of parallel corpora: each yields the sentences of one language.

A reader takes the lines of a file, its path, the column of a table, and the number of lines before
these; path and number are for errors.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.lines import read_lines
from capsnmt.evaluation.text import remove_bpe

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.IGNORECASE)
OPENED = re.compile(r"<seg\b", re.IGNORECASE)
LONGEST_SEGMENT = 1 << 20  # characters
# Metadata of a talk in IWSLT's training files, one element a line between the sentences.
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
    """Yield the lines of a text that Moses' tokeniser has escaped, without the escapes.

    D: ``&apos;`` and the like become characters again: an evaluation would count them as words.
    """
    # Moses writes pipe and brackets as numeric references, which html.unescape decodes too.
    return map(html.unescape, lines)


def read_subwords(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the words of a text that subword-nmt has segmented."""
    return (remove_bpe(line, "subword_nmt") for line in lines)


def read_segments(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield the ``<seg>`` elements of NIST's SGM or of IWSLT's XML.

    D: no XML parser, because not all of these files are well-formed (some have a bare ``&``).
    Entities become characters, as in mteval-v13a and in the training text. A segment may span
    lines.

    Raises:
        ConfigurationError: the file has no segment, or one without an end.
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

    D: lines that begin with a tag (``<url>``, ``<keywords>``, ``<title>``, ...) describe the talk
    and are dropped; fairseq's script keeps the text of titles and descriptions.
    """
    return (line.strip() for line in lines if not TALK.match(line))


def read_columns(lines: Iterable[str], path: Path, column: int, before: int) -> Iterator[str]:
    """Yield one column, counted from 1, of a tab-separated file such as News Commentary v14.

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
    "subwords": read_subwords,
    "sgm": read_segments,
    "iwslt-xml": read_segments,
    "iwslt-tags": read_talks,
    "tsv": read_columns,
}
# Formats that can be read line by line, without the context of other lines.
LINE_BY_LINE = {"plain", "moses", "subwords", "tsv"}


def read_text(path: Path, kind: str, encoding: str, column: int) -> Iterator[str]:
    """Yield the sentences of a file.

    Args:
        path: the file, plain or gzipped.
        kind: its format, a key of `FORMATS`.
        encoding: the encoding of the text.
        column: the column of a ``tsv``, counted from 1.

    Raises:
        ConfigurationError: the file is missing, damaged, or in another format or encoding.
    """
    return FORMATS[kind](read_lines(path, encoding), path, column, 0)

"""A report as Markdown."""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, Sequence

from capsnmt.report.elements import (
    Aside,
    Code,
    Element,
    Figure,
    Heading,
    Link,
    Listing,
    Mark,
    Paragraph,
    Preformatted,
    Report,
    Samples,
    Strong,
    Table,
    Text,
    pieces,
)

SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&])")


def text(value: object) -> str:
    """Escape text, so that Markdown shows it unchanged, also in a table.

    >>> text("a|b <i> *c*\\n")
    'a\\\\|b \\\\<i\\\\> \\\\*c\\\\*'
    """
    return SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


def inline(value: Text) -> str:
    """Render text with code and emphasis."""
    parts = []
    for piece in pieces(value):
        if isinstance(piece, Code):
            parts.append(f"`{piece.text}`")
        elif isinstance(piece, Strong):
            parts.append(f"**{text(piece.text)}**")
        elif isinstance(piece, Link):
            parts.append(f"[{text(piece.text)}]({piece.target})")
        elif isinstance(piece, Mark):
            parts.append(piece.text)
        elif isinstance(piece, Aside):
            parts.append(f"*{text(piece.text)}*")
        else:
            # text() drops the space between two pieces
            before = " " if piece[:1] == " " and parts else ""
            after = " " if piece[-1:] == " " and piece.strip() else ""
            parts.append(f"{before}{text(piece)}{after}")
    return "".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: int = 0) -> str:
    """Render a table; columns from number ``numeric`` on (0: none) are right-aligned."""
    rules = [":--" if not numeric or number < numeric else "--:" for number in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rules, *rows])


def code(content: str, language: str = "") -> str:
    """Render a block of code; its fence is longer than any fence in it."""
    longest = max(map(len, re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{content.rstrip()}\n{fence}"


def paragraphs(each: Element) -> Iterator[str]:
    """Render an element as paragraphs."""
    if isinstance(each, Heading):
        yield f"### {text(each.text)}"
    elif isinstance(each, Paragraph):
        yield inline(each.text)
    elif isinstance(each, Listing):
        yield "\n".join(f"- {inline(item)}" for item in each.items)
    elif isinstance(each, Table):
        rows = ([inline(cell) for cell in row] for row in each.rows)
        yield table([text(cell) for cell in each.header], rows, each.numeric)
    elif isinstance(each, Figure):
        yield f"![{text(each.alt)}]({each.name}.png)"
        yield inline(each.caption)
    elif isinstance(each, Preformatted):
        yield code(each.content, each.language)
    else:
        yield samples(each)


def samples(each: Samples) -> str:
    """Render sentences as a table, the systems side by side."""
    source, target = each.languages
    header = ["no.", f"source ({source})", f"reference ({target})", *each.names]
    rows = (
        [
            str(sentence.number),
            *map(text, (sentence.source, sentence.reference)),
            *(text(line) or "*(empty)*" for line in sentence.translations),
        ]
        for sentence in each.sentences
    )
    return table([text(cell) for cell in header], rows)


def render(report: Report) -> str:
    """Render the page."""
    parts: List[str] = [f"# {text(report.title)}"]
    for each in report.summary:
        parts += paragraphs(each)
    for heading, elements in report.sections.items():
        parts.append(f"## {text(heading)}")
        for each in elements:
            parts += paragraphs(each)
    return "\n\n".join(parts) + "\n"

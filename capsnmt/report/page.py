"""A report from its parts: one page as HTML and as Markdown, with its figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

from capsnmt.files import write_all
from capsnmt.report import html, markdown
from capsnmt.report.elements import Element, Report
from capsnmt.report.figures import METADATA, drawing, image, svg

HTML, MARKDOWN = "report.html", "report.md"


@dataclass(frozen=True)
class Part:
    """The part of a report about one kind of run.

    Attributes:
        title: title of a page that has only this part; empty if it has none of its own.
        summary: what a reader must know before the first table.
        sections: heading -> elements.
        figures: name of each figure -> function that draws it.
        tables: name of each CSV file -> its content.
        pictures: name of each figure that is drawn already -> its SVG element.
    """

    title: str
    summary: Sequence[Element]
    sections: Mapping[str, Sequence[Element]]
    figures: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)


def write_page(parts: Sequence[Part], output: Path, title: str = "") -> Path:
    """Write the page as HTML, and as Markdown with its figures as PNG and SVG.

    Every file is written under a temporary name and renamed at the end, the pages last.

    Args:
        parts: parts of the page; sections with the same heading become one.
        output: folder of the page.
        title: title of the page; empty takes the titles of the parts.

    Returns:
        The HTML file.

    Raises:
        ConfigurationError: matplotlib or Jinja2 is not installed.
    """
    sections: Dict[str, List[Element]] = {}
    for part in parts:
        for heading, elements in part.sections.items():
            sections.setdefault(heading, []).extend(elements)
    report = Report(
        title or "; ".join(part.title for part in parts if part.title),
        [element for part in parts for element in part.summary],
        sections,
    )
    with drawing():
        contents: Dict[Path, bytes] = {}
        pictures = {name: each for part in parts for name, each in part.pictures.items()}
        for name, draw in ((name, draw) for part in parts for name, draw in part.figures.items()):
            figure = draw()
            files = {kind: image(figure, kind) for kind in METADATA}
            contents.update({output / f"{name}.{kind}": file for kind, file in files.items()})
            pictures[name] = svg(files["svg"], name)
    texts = {
        **{name: table for part in parts for name, table in part.tables.items()},
        HTML: html.render(report, pictures),
        MARKDOWN: markdown.render(report),
    }
    for name, text in texts.items():
        contents[output / name] = text.encode("utf-8", "replace")
    write_all(contents)
    return output / HTML

"""A report from its parts: one page as HTML and as Markdown, with its pictures."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence

from capsnmt.files import temporary_path
from capsnmt.report import html, markdown
from capsnmt.report.blocks import Block, Document
from capsnmt.report.figures import drawing, save, svg

HTML, MARKDOWN = "report.html", "report.md"


@dataclass(frozen=True)
class Part:
    """What one kind of run has to say.

    Attributes:
        title: of a page that has only this part.
        summary: what a reader must know before the first table.
        sections: heading -> blocks.
        figures: the name of each picture -> what draws it.
    """

    title: str
    summary: Sequence[Block]
    sections: Mapping[str, Sequence[Block]]
    figures: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


def write_page(parts: Sequence[Part], output: Path, title: str = "") -> Path:
    """Write the page, as HTML and as Markdown with its pictures, and return the first.

    All files are written beside and then renamed, the pages last: what stands there is whole.

    Args:
        parts: in the order of the page.
        output: the folder.
        title: of the page; empty takes those of its parts.

    Raises:
        ConfigurationError: matplotlib or Jinja2 is not installed.
    """
    document = Document(
        title or "; ".join(part.title for part in parts),
        [block for part in parts for block in part.summary],
        {heading: blocks for part in parts for heading, blocks in part.sections.items()},
    )
    with drawing():
        figures = {name: draw() for part in parts for name, draw in part.figures.items()}
        pictures = {name: svg(figure, name) for name, figure in figures.items()}
        pages = {
            HTML: html.render(document, pictures),
            MARKDOWN: markdown.render(document),
        }
        output.mkdir(parents=True, exist_ok=True)
        _write_whole(output, figures, pages)
    return output / HTML


def _write_whole(output: Path, figures: Dict[str, Any], pages: Dict[str, str]) -> None:
    """Write all files beside their places, then rename them."""
    with ExitStack() as stack:
        paths = [output / f"{name}.png" for name in figures] + [output / name for name in pages]
        for path in paths:
            stack.callback(temporary_path(path).unlink, missing_ok=True)
        for path, figure in zip(paths, figures.values()):
            save(figure, temporary_path(path))
        for path, content in zip(paths[len(figures) :], pages.values()):
            temporary_path(path).write_text(content, encoding="utf-8", errors="replace")
        for path in paths:
            os.replace(temporary_path(path), path)

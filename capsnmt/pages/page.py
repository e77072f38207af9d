"""A page from one Markdown template: the Markdown, and HTML that is made from it.

A template holds the headings, the sentences and the places of tables and figures, in the order in
which they are read:

    ## Training

    {{ trained }}

    {{ picture("learning_curve", "Loss over updates.") }}
    *Loss over updates: validation solid, training dotted.*

Whatever it prints is escaped, unless it is Markdown already: a `Table`, `code(text)`,
`block(text)` or `picture(name, alt)`. In HTML the figure itself stands at the place of its picture.
"""

import base64
import csv
import hashlib
import html
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

from capsnmt.cli import say
from capsnmt.files import write_all
from capsnmt.pages.plots import drawing, images, inline_svg

SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")
HTML = re.compile(r"&|>|<(?=[^\s\d])")
SHELL = Path(__file__).with_name("page.html.j2")


class Markdown(str):
    """Text that is Markdown already."""


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading."""

    header: Sequence[object]
    rows: Sequence[Sequence[object]]
    numeric: int = 0  # the first column that is aligned right; 0 for none

    def __str__(self) -> str:
        rules = [":--", "--:"]
        aligned = [rules[0 < self.numeric <= column] for column in range(len(self.header))]
        lines = [map(_cell, self.header), aligned, *(map(_cell, row) for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    # the | of code ends a cell too; in text it is escaped already
    return value.replace("|", "\\|") if isinstance(value, Markdown) else escape(value)


def escape(value: object) -> Markdown:
    """Escape text, so that Markdown shows it unchanged, in one line.

    **D**: what could begin an element of HTML becomes an entity, so that text is no HTML either
    where a template puts it into an element such as ``<summary>``.

    >>> print(escape("a|b <i> *c* < 1\\n"), escape(code("*c*")))
    a\\|b &lt;i&gt; \\*c\\* < 1 `*c*`
    """
    if isinstance(value, (Markdown, Table)):
        return Markdown(value)
    text = SPECIAL.sub(r"\\\1", " ".join(str(value).split()))
    return Markdown(HTML.sub(lambda found: html.escape(found[0]), text))


def code(text: str) -> Markdown:
    """Return text as code in a line.

    >>> code("a"), code("`b`")
    ('`a`', '`` `b` ``')
    """
    ticks = _longer_than_any(text, 1)
    space = " " if "`" in text else ""
    return Markdown(f"{ticks}{space}{' '.join(text.split())}{space}{ticks}")


def block(text: str) -> Markdown:
    """Return commands as a block of code."""
    fence = _longer_than_any(text, 3)
    return Markdown(f"{fence}bash\n{text.rstrip()}\n{fence}")


def _longer_than_any(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def picture(name: str, alt: str) -> Markdown:
    """Return a figure of the page, with a description for readers who do not see it."""
    return Markdown(f"![{escape(alt)}]({quote(name)}.png)")


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def write_page(
    template: Path,
    folder: Path,
    context: Mapping[str, Any],
    figures: Mapping[str, Callable[[], Any]],
    files: Mapping[str, str],
    extra: str = "",
    script: str = "",
) -> Path:
    """Write a page as Markdown and as HTML, with its figures as PNG and SVG, or nothing.

    Args:
        template: ``NAME.md.j2``, which becomes ``NAME.md`` and ``NAME.html``; the HTML is one file
            that loads nothing.
        folder: where to.
        context: the values of the template.
        figures: name of each figure, which may begin with a folder -> function that draws it.
        files: name of each further file -> its text.
        extra: trusted HTML that follows the last section; its ``<h2 id=...>`` are in the contents.
        script: JavaScript, the only one that the page may run.
    """
    contents: Dict[Path, bytes] = {}
    pictures: Dict[str, str] = {}
    with drawing():
        for name, draw in figures.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                drawn = images(draw())
            boxes = {text for each in caught if "missing from" in (text := str(each.message))}
            if boxes:
                lacking = f"{len(boxes)} character(s) that its font lacks; take {name}.svg"
                say(f"warning: {folder / name}.png has boxes for {lacking}")
            for suffix, image in drawn.items():
                contents[folder / f"{name}.{suffix}"] = image
            pictures[f"{name}.png"] = inline_svg(contents[folder / f"{name}.svg"], name)
    markdown = _environment(template.parent, finalize=escape)
    markdown.globals.update(block=block, code=code, picture=picture)
    text = markdown.get_template(template.name).render(context)
    page = folder / template.name.replace(".md.j2", ".html")
    html_text = render_html(text, pictures, extra, script)
    texts = {**files, page.with_suffix(".md").name: text, page.name: html_text}
    for name, content in texts.items():
        contents[folder / name] = content.encode("utf-8", "replace")
    write_all(contents)
    return page


def render_html(text: str, pictures: Mapping[str, str], extra: str, script: str) -> str:
    """Make the HTML page of Markdown, whose first heading is the title, and of SVG pictures."""
    from markdown_it import MarkdownIt
    from markupsafe import Markup

    def image(_: Any, tokens: Sequence[Any], at: int, *others: Any) -> str:
        label, drawn = html.escape(_text(tokens[at])), pictures[unquote(tokens[at].attrs["src"])]
        return f'<span class="figure" role="img" aria-label="{label}">{drawn}</span>'

    parser = MarkdownIt("commonmark").enable("table")
    parser.add_render_rule("image", image)
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    tokens = parser.parse(text)
    _make_accessible(tokens)
    body = parser.renderer.render(tokens, parser.options, {}) + extra
    return (
        _environment(SHELL.parent, autoescape=True)
        .get_template(SHELL.name)
        .render(
            title=_text(tokens[1]),
            sections=[map(Markup, each) for each in re.findall(r'<h2 id="(.*?)">(.*?)</h2>', body)],
            body=Markup(body),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _environment(folder: Path, **settings: Any) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **settings,
    )


def _make_accessible(tokens: Sequence[Any]) -> None:
    """Give a page what links, keyboards and screen readers need."""
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == "h2":
            token.attrSet("id", f"section-{at}")
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif token.type == "tr_open" and tokens[at + 1].type == "td_open":
            first, _, end = tokens[at + 1 : at + 4]
            first.tag = end.tag = "th"
            first.attrSet("scope", "row")
        elif token.type == "fence":
            token.attrSet("tabindex", "0")


def _text(token: Any) -> str:
    return "".join(child.content for child in token.children)

"""The report as one HTML file that needs nothing beside it."""

from __future__ import annotations

from typing import Any, Mapping

from capsnmt.errors import ConfigurationError
from capsnmt.report import blocks
from capsnmt.report.blocks import Document, pieces

TEMPLATE = "report.html.j2"


def render(document: Document, pictures: Mapping[str, str]) -> str:
    """The whole page; every text is escaped, and nothing is loaded from anywhere.

    Args:
        document: the report.
        pictures: the name of each figure -> its SVG element.

    Raises:
        ConfigurationError: Jinja2, which torch brings, is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise ConfigurationError("the report needs Jinja2: pip install jinja2") from None
    environment = Environment(
        loader=PackageLoader("capsnmt.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(pieces=pieces, kind=_kind)
    # ours, drawn by matplotlib, which escapes the names in it
    drawn = {name: Markup(picture) for name, picture in pictures.items()}
    page = environment.get_template(TEMPLATE)
    return page.render(document=document, pictures=drawn).lstrip() + "\n"


def _kind(block: Any) -> str:
    """The name of a block's class, or of text.

    Raises:
        TypeError: it is no block.
    """
    name = type(block).__name__
    if name != "str" and not hasattr(blocks, name):
        raise TypeError(f"{name} is no block of a report")
    return name

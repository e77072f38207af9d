"""A report as one self-contained HTML file."""

from __future__ import annotations

from typing import Any, Mapping

from capsnmt.report import elements
from capsnmt.report.elements import Report, pieces

TEMPLATE = "report.html.j2"


def render(
    report: Report,
    pictures: Mapping[str, str],
    package: str = "capsnmt.report",
    template: str = TEMPLATE,
    **values: Any,
) -> str:
    """Render the page. Every text is escaped, and the page loads nothing.

    Args:
        report: the report.
        pictures: name of each figure -> its SVG element.
        package: the package of the template.
        template: the template; it may extend ``TEMPLATE``.
        values: further values of the template.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    packages = dict.fromkeys([package, "capsnmt.report"])
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each, ".") for each in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(pieces=pieces, kind=_kind)
    # trusted: drawn by matplotlib, which escapes the names in it
    drawn = {name: Markup(picture) for name, picture in pictures.items()}
    page = environment.get_template(template)
    return page.render(report=report, pictures=drawn, **values).lstrip() + "\n"


def _kind(element: Any) -> str:
    """Return the name of an element's class, or of text.

    Raises:
        TypeError: it is not an element.
    """
    name = type(element).__name__
    if name != "str" and not hasattr(elements, name):
        raise TypeError(f"{name} is not an element of a report")
    return name

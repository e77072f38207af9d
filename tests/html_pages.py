"""Shared by the tests of pages: without images, in a browser; elements, contrast of colours."""

import re
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Tuple
from unittest.mock import patch


def without_images(svg: bytes = b"<svg />", laid_out: bool = False) -> ContextManager[Any]:
    """Figures of pages are made, or laid out, too, but not rendered: most of the time of a page."""

    def files(figure: Any) -> Dict[str, bytes]:
        if laid_out:
            figure.draw_without_rendering()
        return {"png": b"", "svg": svg}

    return patch("capsnmt.pages.page.images", files)


VOID = {"meta", "link", "br", "img", "path", "use"}


class Page(HTMLParser):
    """The elements of a page; it raises where tags do not match."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: List[Tuple[str, Dict[str, Optional[str]]]] = []
        self.open: List[str] = []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: List[Tuple[str, Optional[str]]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def all(self, tag: str) -> List[Dict[str, Optional[str]]]:
        return [attributes for name, attributes in self.elements if name == tag]


@contextmanager
def opened(browser: Any, path: Path, width: int = 1280) -> Iterator[Any]:
    """Open a page in a browser; it must neither complain nor ask for another file."""
    messages: List[str] = []
    requests: List[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    try:
        yield page
        assert messages == []
        assert requests == [path.as_uri()]
    finally:
        page.close()


def luminance(colour: str) -> float:
    """Relative luminance of ``rgb(r, g, b)`` (WCAG 2)."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (int(number) / 255 for number in re.findall(r"\d+", colour)[:3])
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2), 1..21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)

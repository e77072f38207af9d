"""The figures of a report: learning curves, and scores by source length, flag or operators."""

from __future__ import annotations

import io
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Dict, Iterable, Iterator, Sequence

# Legible with a colour vision deficiency (Okabe and Ito 2008). None is black, because the page may
# be dark.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1")
MARKERS = "osD^vPX"
# above this multiple of the lowest loss a curve only shows the initialisation
TALLEST = 2.5
MOST_NAMES_INSIDE = 8  # of systems, in the corner of a figure; more would cover the lines
BAR_DISTANCE = 0.12  # between the error bars of two systems, in the distance of two ticks
# stands for the page's text colour; no line has this colour
INK = "#010203"
# Each kind of file -> its metadata: without dates and versions, so that the bytes stay the same.
METADATA: Dict[str, Dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
_systems: ContextVar[Sequence[str]] = ContextVar("capsnmt_systems_of_the_page", default=())
# the white that image() draws below everything
BACKGROUND = re.compile(r'<g id="patch_1">\s*<path [^>]*style="fill: #ffffff"/>\s*</g>')
SETTINGS: Dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "capsnmt",  # so that the same runs give the same bytes
    "font.family": "sans-serif",
    "text.parse_math": False,  # a name or subword may hold dollars
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
}


def figure_of(height: float) -> Any:
    """Return an empty figure, without pyplot, which keeps global state and may need a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def image(figure: Any, kind: str) -> bytes:
    """Return a figure on white as a file. The same figure gives the same bytes.

    Args:
        figure: a figure drawn under :func:`drawing`.
        kind: a key of :data:`METADATA`.
    """
    content = io.BytesIO()
    figure.savefig(content, format=kind, facecolor="white", metadata=METADATA[kind])
    figure.set_layout_engine("none")  # the axes stay where they are: further files are faster
    return content.getvalue()


def svg(content: bytes, name: str) -> str:
    """Return an SVG file as an element in the colours of the surrounding page.

    Args:
        content: the file of a figure, as :func:`image` returns it.
        name: prefix of every identifier, which must be unique in a page.

    Raises:
        ValueError: it is not such a file.
    """
    text = content.decode("utf-8")
    text = text[text.index("<svg ") :].replace(INK, "currentColor")
    text = BACKGROUND.sub("", text, count=1)
    # the page sets its size, and a screen reader reads the figure's label
    text = re.sub(r'(<svg [^>]*?) width="[^"]*pt"', r'\1 aria-hidden="true"', text, count=1)
    text = re.sub(r'(<svg [^>]*?) height="[^"]*pt"', r"\1", text, count=1)
    prefix = re.sub(r"\W", "-", name)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", text)
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)


@contextmanager
def drawing(systems: Sequence[str] = ()) -> Iterator[None]:
    """Draw with the settings of our figures inside the ``with`` block.

    Args:
        systems: names of all systems of the page, so that a figure that leaves some out gives the
            others their usual colours.
    """
    backend = os.environ.pop("MPLBACKEND", None)  # of no use here; matplotlib refuses unknown ones
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    token = _systems.set(systems)
    try:
        with matplotlib.rc_context(SETTINGS):
            yield
    finally:
        _systems.reset(token)


def style(number: int) -> Dict[str, str]:
    """Return colour and marker of the system with this number, from 0; 49 differ.

    >>> style(0)["color"] == style(7)["color"], style(0)["marker"] == style(7)["marker"]
    (True, False)
    """
    colours = len(COLOURS)
    marker = MARKERS[(number + number // colours) % len(MARKERS)]
    return {"color": COLOURS[number % colours], "marker": marker}


def styles(names: Iterable[str]) -> Dict[str, Dict[str, str]]:
    """Return colour and marker of each system: by its place on the page, or else in the figure."""
    names = list(names)
    places = {name: place for place, name in enumerate(dict.fromkeys((*_systems.get(), *names)))}
    return {name: style(places[name]) for name in names}

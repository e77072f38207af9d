"""What all figures of a page share: size, colours, files, and their place in the page."""

import io
import math
import re
from typing import Any, Callable, ContextManager, Dict, Iterable, Sequence

# Legible with a colour vision deficiency (Okabe and Ito 2008). None is black, because the page may
# be dark.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1")
MARKERS = "osD^vPX"
INK = "#010203"  # stands for the page's text colour; no line of data has it
MOST_NAMES_INSIDE = 8  # in the corner of a figure; more would cover the lines
WIDTH = 8  # inches
Figures = Dict[str, Callable[[], Any]]  # name of each figure of a page -> what draws it
# Each kind of file -> its metadata: without dates and versions, so that the bytes stay the same.
KINDS: Dict[str, Dict[str, None]] = {
    "png": {"Software": None},
    "svg": dict.fromkeys(("Creator", "Date", "Format", "Type")),
}
SETTINGS: Dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "capsnmt",  # so that the same figure gives the same bytes
    "font.family": "sans-serif",
    "text.parse_math": False,  # a name or subword may hold dollars
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
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

    figure = Figure(figsize=(WIDTH, height), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def drawing() -> ContextManager[None]:
    """Draw with the settings of our figures, and not the user's, inside the ``with`` block."""
    import matplotlib.style

    return matplotlib.style.context(SETTINGS, after_reset=True)


def images(figure: Any) -> Dict[str, bytes]:
    """Return the files of a figure on white, by suffix; the same figure gives the same bytes."""
    files = {}
    for kind, metadata in KINDS.items():
        content = io.BytesIO()
        figure.savefig(content, format=kind, facecolor="white", metadata=metadata)
        figure.set_layout_engine("none")  # the axes stay where they are: the next file is faster
        files[kind] = content.getvalue()
    return files


def inline_svg(content: bytes, name: str) -> str:
    """Return an SVG file as an element of a page, in the page's text colour.

    ``name`` is the prefix of every identifier, which must be unique in a page.
    """
    text = content.decode("utf-8")
    prefix = re.sub(r"\W", lambda found: f"-{ord(found[0])}-", name)  # no other name has it

    def changed(element: "re.Match[str]") -> str:  # not the text between elements
        own = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", element[0])
        return own.replace(INK, "currentColor")

    return re.sub("<[^>]*>", changed, text[text.index("<svg ") :])


def styles(names: Iterable[str]) -> Dict[str, Dict[str, str]]:
    """Return colour and marker of each system of a page, by its place; 49 differ.

    >>> of = styles("abcdefgh")
    >>> of["a"]["color"] == of["h"]["color"], of["a"]["marker"] == of["h"]["marker"]
    (True, False)
    """
    found = {}
    for place, name in enumerate(dict.fromkeys(names)):
        rounds, colour = divmod(place, len(COLOURS))
        marker = MARKERS[(place + rounds) % len(MARKERS)]
        found[name] = {"color": COLOURS[colour], "marker": marker}
    return found


def legend_name(name: str) -> str:
    """Return a name as a legend takes it: matplotlib leaves out those that begin with ``_``."""
    return f"\N{HAIR SPACE}{name}" if name.startswith("_") else name


def finish(axes: Any) -> None:
    """Add the grid, and the legend where it covers no line."""
    axes.grid(alpha=0.2)
    handles, names = axes.get_legend_handles_labels()
    if len(names) <= MOST_NAMES_INSIDE:
        axes.legend(frameon=False)
        return
    legend_below(axes.figure, names, handles)


def legend_below(figure: Any, names: Sequence[str], handles: Sequence[Any]) -> None:
    """Add a legend in as many columns as fit, by which the figure becomes higher."""
    columns = max(1, min(3, 110 // (8 + max(map(len, names)))))  # 110 letters fit
    figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(names) / columns))
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, fontsize="small", frameon=False
    )

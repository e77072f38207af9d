"""The figures of a report: learning curves, and scores by source length, flag or operators."""

from __future__ import annotations

import io
import math
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from capsnmt.evaluation.scores import Spread
from capsnmt.runs.learning_curve import LearningCurve

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


def learning_curves(curves: Mapping[str, Sequence[LearningCurve]]) -> Any:
    """Draw validation loss (solid) and training loss (dotted), one line for each seed.

    The loss axis ends at ``TALLEST`` times the lowest loss, so that the part where systems differ
    fills the figure, and not the first updates.

    Args:
        curves: name of each system -> its curves.
    """
    figure = figure_of(4.5)
    from matplotlib.ticker import StrMethodFormatter

    axes = figure.add_subplot()
    own = styles(curves)
    for name, seeds in curves.items():
        for curve in seeds:
            axes.plot(*_line(curve.train), ":", color=own[name]["color"], linewidth=1.2)
            axes.plot(*_line(curve.valid), "-", linewidth=1.8, markersize=4, **own[name])
        axes.plot([], [], "-", markersize=4, label=name, **own[name])
    losses = [
        loss
        for seeds in curves.values()
        for curve in seeds
        for points in (curve.train, curve.valid)
        for loss in points.values()
    ]
    low, high = min(losses), max(losses)
    top = min(high, TALLEST * low)
    margin = 0.05 * (top - low) or 0.1
    axes.set_ylim(low - margin, top + margin)
    axes.set_xlim(left=0)
    axes.set_xlabel("updates")
    axes.set_ylabel("loss, bits per target subword (label-smoothed)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _finish(axes)
    return figure


def bleu_by_length(bleu: Mapping[str, Mapping[str, float]], segments: Mapping[str, int]) -> Any:
    """Draw BLEU by source length, one line for each system.

    Args:
        bleu: name of each system -> BLEU of each bucket.
        segments: number of sentences in each bucket.
    """
    figure = figure_of(3.6)
    axes = figure.add_subplot()
    own = styles(bleu)
    for name, row in bleu.items():
        axes.plot(
            range(len(segments)),
            [row.get(bucket, float("nan")) for bucket in segments],
            linewidth=1.8,
            markersize=5,
            label=name,
            **own[name],
        )
    ticks = [f"{bucket}\n({number:,})" for bucket, number in segments.items()]
    axes.set_xticks(range(len(segments)), ticks)
    axes.set_xlabel("length of the source (sentences)")
    axes.set_ylabel("BLEU")
    axes.set_ylim(bottom=0)
    _finish(axes)
    return figure


def accuracy_by_operators(
    accuracy: Mapping[str, Mapping[int, Optional[Spread]]], majority: float
) -> Any:
    """Draw test accuracy by number of operators, one line for each system with its deviation.

    Args:
        accuracy: name of each system -> number of operators -> accuracy in percent over seeds.
        majority: accuracy of always choosing the most frequent class.
    """
    figure = figure_of(4.5)
    axes = figure.add_subplot()
    own = styles(accuracy)
    for place, (name, by_operators) in enumerate(accuracy.items()):
        points = {operators: found for operators, found in by_operators.items() if found}
        # side by side, so that the bars of one system do not hide another's
        shift = BAR_DISTANCE * (place - (len(accuracy) - 1) / 2)
        axes.errorbar(
            [operators + shift for operators in points],
            [found.mean for found in points.values()],
            yerr=[found.std or 0 for found in points.values()],
            markersize=5,
            capsize=3,
            label=name,
            **own[name],
        )
    axes.set_ylim(top=min(axes.get_ylim()[1], 101))  # a deviation may exceed 100%
    axes.axhline(majority, color=INK, linestyle=":", label="majority class")
    axes.set_xticks(sorted({operators for found in accuracy.values() for operators in found}))
    axes.set_xlabel("operators in the longer sentence")
    axes.set_ylabel("test accuracy, percent")
    _finish(axes)
    return figure


def bleu_by_value(
    flag: str,
    labels: Sequence[str],
    bleu: Mapping[str, Mapping[str, Spread]],
    baselines: Mapping[str, Spread],
) -> Any:
    """Draw BLEU over the values of a flag, one line for each row, with every seed.

    **D**: the values are evenly spaced: 1, 8, 64 and 512 are four settings, not a scale.

    Args:
        flag: the label of the axis.
        labels: the values.
        bleu: name of each row -> label of a value -> BLEU over seeds.
        baselines: name of each baseline -> BLEU over seeds, a horizontal line.
    """
    figure = figure_of(3.6)
    axes = figure.add_subplot()
    own = styles(bleu)
    for place, (name, found) in enumerate(bleu.items()):
        # side by side, so that the bars of one row do not hide another's
        shift = BAR_DISTANCE * (place - (len(bleu) - 1) / 2)
        places = [labels.index(label) + shift for label in found]
        axes.errorbar(
            places,
            [each.mean for each in found.values()],
            yerr=[each.std or 0 for each in found.values()],
            markersize=6,
            capsize=3,
            label=name,
            **own[name],
        )
        for x, each in zip(places, found.values()):
            if len(each.values) > 1:
                seeds = [x] * len(each.values)
                axes.plot(seeds, each.values, ".", color=own[name]["color"], markersize=4)
    for number, (name, each) in enumerate(baselines.items()):
        style = ("--", ":", "-.")[number % 3]
        axes.axhline(each.mean, color=INK, linestyle=style, label=name)
        if each.std:
            axes.axhspan(each.mean - each.std, each.mean + each.std, color=INK, alpha=0.1)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel(flag)
    axes.set_ylabel("BLEU")
    _finish(axes)
    return figure


def _line(points: Mapping[int, float]) -> Tuple[List[int], List[float]]:
    updates = sorted(points)
    return updates, [points[update] for update in updates]


def _finish(axes: Any) -> None:
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    if len(names) <= MOST_NAMES_INSIDE:
        axes.legend(frameon=False)
        return
    figure = axes.figure
    columns = max(1, min(3, 110 // (8 + max(map(len, names)))))  # 110 letters fit
    figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(names) / columns))
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, fontsize="small", frameon=False
    )

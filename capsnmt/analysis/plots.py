"""The figures of analyses: points by layer, matrices, and points in the plane, in panels."""

import textwrap
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Mapping, Sequence, Tuple

from torch import Tensor

from capsnmt.pages.plots import WIDTH, figure_of, legend_below, legend_name, styles

# what the columns of a CSV file abbreviate
PANELS = {
    "enc-self": "encoder self-attention",
    "enc-dec": "encoder-decoder attention",
    "dec-self": "decoder self-attention",
    "encoder-output": "what the decoder reads",
    "zeros": "replaced by zeros",
    "mean": "replaced by its mean over all tokens",
}
LONGEST_LABEL = 14  # characters of a subword on an axis
LETTERS = 76  # of the titles of a row of panels
MOST_NAMES_BESIDE = 8  # names in a column beside a row of panels
COLOUR_MAP = "viridis"  # monotone in lightness: legible in print and with any colour vision


def in_words(place: str, layer: int) -> str:
    """Return what an attention of a layer is called, or so many layers of a stack."""
    found = PANELS.get(place)
    return f"{found}, layer {layer}" if found else f"{layer} layers of the {place}"


@dataclass(frozen=True)
class Figure:
    """A figure of an analysis."""

    name: str  # of its files, without an extension
    caption: str  # the first sentence describes it to readers who do not see it
    draw: Callable[[], Any]  # inside :func:`capsnmt.pages.plots.drawing`


@dataclass(frozen=True)
class PointsByLayer:
    """A column of a CSV file by layer, and a line through the means of the layers."""

    name: str  # of the figure
    column: str  # of the numbers
    label: str  # of the numbers, with their unit
    panel: str  # the column whose values are the panels
    caption: str

    def figure(self, models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
        """Return the figure of the rows of each model of the page: column -> value."""
        panels: Dict[str, Dict[str, List[Tuple[int, float]]]] = {}
        for model, rows in models.items():
            for row in rows:
                title = PANELS.get(row[self.panel], row[self.panel])
                points = panels.setdefault(title, {}).setdefault(model, [])
                points.append((row["layer"], row[self.column]))
        return Figure(self.name, self.caption, partial(_by_layer, panels, self.label, [*models]))


def _by_layer(
    panels: Mapping[str, Mapping[str, Sequence[Tuple[int, float]]]],
    label: str,
    systems: Sequence[str],
) -> Any:
    """Draw layers and numbers of models; each of the ``systems`` of the page has a colour."""
    figure, grid = _grid(panels, len(panels), 3.2, sharey=True)
    style_of = styles(systems)
    for axes, models in zip(grid[0], panels.values()):
        for name, points in models.items():
            by_layer: Dict[int, List[float]] = {}
            for layer, value in points:
                by_layer.setdefault(layer, []).append(value)
            means = [sum(values) / len(values) for values in by_layer.values()]
            colour = style_of[name]["color"]
            axes.scatter(*zip(*points), s=10, alpha=0.5, linewidth=0, color=colour)
            line = {"markersize": 4, "linewidth": 1.5, **style_of[name]}
            axes.plot([*by_layer], means, label=legend_name(name), **line)
        axes.set_xlabel("layer")
        axes.set_xticks(sorted({layer for points in models.values() for layer, _ in points}))
        axes.grid(alpha=0.2)
    grid[0, 0].set_ylabel(label)
    shown = _labelled(figure)
    legend_below(figure, [*shown], [*shown.values()])
    return figure


def matrices(
    panels: Mapping[str, Tensor],
    labels: Tuple[str, str, str],
    first: int = 1,
    words: Tuple[Sequence[str], Sequence[str]] = ((), ()),
    highest: float = 0,
) -> Any:
    """Draw matrices with one colour scale from 0; NaN is left blank.

    Args:
        panels: the matrices by title.
        labels: of the colours, with their unit, of the rows and of the columns.
        first: number of the first row and column.
        words: subwords, in place of the numbers.
        highest: the end of the scale; by default the highest number.
    """
    from matplotlib.ticker import MaxNLocator

    figure, grid = _grid(panels, 4, 2.7, sharey=len({*map(len, panels.values())}) == 1)
    highest = highest or max(float(matrix.nan_to_num().max()) for matrix in panels.values())
    for axes, matrix in zip(grid.flat, panels.values()):
        low, (height, width) = first - 0.5, matrix.shape
        image = axes.imshow(
            matrix.numpy(),
            aspect="equal" if any(words) else "auto",
            interpolation="nearest",
            cmap=COLOUR_MAP,
            vmin=0,
            vmax=highest,
            extent=(low, low + width, low + height, low),
        )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axes.set_yticks(range(first, first + height))
        if any(words):
            rows, columns = ([word[:LONGEST_LABEL] for word in axis] for axis in words)
            axes.set_yticks(range(first, first + height), rows)
            axes.set_xticks(range(first, first + width), columns)
            axes.tick_params(labelsize=6)
            axes.tick_params(axis="x", rotation=90)
    for axes in grid[:, 0]:
        axes.set_ylabel(labels[1])
    for axes in grid[-1]:
        axes.set_xlabel(labels[2])
    figure.colorbar(image, ax=grid, shrink=0.9, label=labels[0])
    return figure


def scatter(panels: Mapping[str, Tuple[Any, Any]], groups: str) -> Any:
    """Draw points ``[n, 2]``, and the group of each, from 0; ``groups`` is the legend's title."""
    figure, grid = _grid(panels, 3)
    for axes, (points, group) in zip(grid.flat, panels.values()):
        for number, style in enumerate(styles(map(str, range(int(group.max()) + 1))).values()):
            axes.scatter(*points[group == number].T, s=8, label=str(number + 1), **style)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)  # a frame: the next panel is close
        axes.set_aspect("equal", adjustable="datalim")
    shown = _labelled(figure)
    figure.legend(
        *(shown.values(), shown),
        loc="outside right center",
        title=groups,
        ncols=-(-len(shown) // MOST_NAMES_BESIDE),
        markerscale=2,
        frameon=False,
    )
    return figure


def _grid(
    titles: Collection[str], most_across: int, height: float = 0, **shared: bool
) -> Tuple[Any, Any]:
    """Return a figure and its axes; a row of panels has a height, or they are squares."""
    across = min(most_across, len(titles))
    down = -(-len(titles) // across)
    figure = figure_of((height or WIDTH / across) * down)
    grid = figure.subplots(down, across, squeeze=False, **shared)
    for axes, title in zip(grid.flat, titles):
        text = textwrap.fill(title, LETTERS // across)
        axes.set_title(text, fontsize="small" if "\n" in text else "medium")
    for axes in grid.flat[len(titles) :]:
        axes.set_visible(False)
    return figure, grid


def _labelled(figure: Any) -> Dict[str, Any]:
    """Return what the panels show by its label, each once."""
    entries = (zip(*axes.get_legend_handles_labels()) for axes in figure.axes)
    return {label: handle for of_panel in entries for handle, label in of_panel}

"""The figures of analyses: points by layer, and matrices side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from torch import Tensor

from capsnmt.pages.plots import figure_of, styles

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
ACROSS = 4  # matrices side by side
COLOUR_MAP = "viridis"  # monotone in lightness: legible in print and with any colour vision


Points = Sequence[Tuple[int, float]]  # layer and number


@dataclass(frozen=True)
class Figure:
    """A figure of an analysis."""

    name: str  # of its files, without an extension
    caption: str  # the first sentence describes it to readers who do not see it
    draw: Callable[[], Any]  # with matplotlib, inside capsnmt.pages.plots.drawing


@dataclass(frozen=True)
class PointsByLayer:
    """A column of numbers by layer, and a line through the means of the layers, for each model."""

    name: str  # of the figure
    column: str  # of the numbers
    label: str  # of the numbers, with their unit
    panel: str  # the column whose values are the panels
    caption: str
    error: str = ""  # the column of standard errors, if there is one

    def figure(self, models: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
        """Return the figure of the rows of each model of the page: column -> value."""
        panels: Dict[str, Dict[str, List[Tuple[int, float]]]] = {}
        for model, rows in models.items():
            for row in rows:
                points = panels.setdefault(row[self.panel], {}).setdefault(model, [])
                points.append((row["layer"], row[self.column]))
        caption = self.caption
        errors = [row[self.error] for rows in models.values() for row in rows if self.error]
        known = [error for error in errors if error == error]  # one sentence has none
        if known:
            caption += f" The highest standard error is {max(known):.2g}."
        return Figure(self.name, caption, lambda: self._draw(panels, styles(models)))

    def _draw(self, panels: Mapping[str, Mapping[str, Points]], own: Mapping[str, Any]) -> Any:
        figure = figure_of(3.2)
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, models) in zip(all_axes, panels.items()):
            for name, points in models.items():
                by_layer: Dict[int, List[float]] = {}
                for layer, value in points:
                    by_layer.setdefault(layer, []).append(value)
                means = [sum(values) / len(values) for values in by_layer.values()]
                small = {"s": 10, "alpha": 0.5, "linewidth": 0, "color": own[name]["color"]}
                axes.scatter(*zip(*points), **small)
                large = {"markersize": 4, "linewidth": 1.5, **own[name]}
                axes.plot([*by_layer], means, label=name, **large)
            axes.set_title(PANELS.get(title, title), fontsize="medium")
            axes.set_xlabel("layer")
            axes.set_xticks(sorted({layer for points in models.values() for layer, _ in points}))
            axes.grid(alpha=0.2)
        all_axes[0].set_ylabel(self.label)
        _add_legend(figure, "lower center", ncols=4)
        return figure


def _add_legend(figure: Any, place: str, **options: Any) -> None:
    """Add what the panels show, each label once."""
    entries = (zip(*axes.get_legend_handles_labels()) for axes in figure.axes)
    found = {label: handle for of_panel in entries for handle, label in of_panel}
    figure.legend(found.values(), found, loc=f"outside {place}", frameon=False, **options)


def matrices(
    panels: Mapping[str, Tensor],
    label: str,
    rows: str,
    columns: str,
    first: int = 1,
    words: Tuple[Sequence[str], Sequence[str]] = ((), ()),
    highest: float = 0,
) -> Callable[[], Any]:
    """Return a function that draws matrices side by side with one colour scale from 0.

    NaN is left blank. ``label``, ``rows`` and ``columns`` are those of colours and axes. Rows and
    columns are numbered from ``first``, or are ``words``. The scale ends at ``highest``, by default
    the highest number of these matrices.
    """

    def draw() -> Any:
        from matplotlib.ticker import MaxNLocator

        across = min(ACROSS, len(panels))
        down = -(-len(panels) // across)
        figure = figure_of(2.7 * down)
        same_rows = len({matrix.size(0) for matrix in panels.values()}) == 1
        grid = figure.subplots(down, across, sharey=same_rows, squeeze=False)
        end = highest or max(float(matrix.nan_to_num().max()) for matrix in panels.values())
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, matrix) in zip(grid.flat, panels.items()):
            low, (height, width) = first - 0.5, matrix.shape
            image = axes.imshow(
                matrix.numpy(),
                aspect="equal" if any(words) else "auto",
                interpolation="nearest",
                cmap=COLOUR_MAP,
                vmin=0,
                vmax=end,
                extent=(low, low + width, low + height, low),
            )
            axes.set_title(title, fontsize="medium")
            if any(words):
                of_rows, of_columns = ([word[:LONGEST_LABEL] for word in axis] for axis in words)
                axes.set_yticks(range(first, first + height), of_rows)
                axes.set_xticks(range(first, first + width), of_columns)
                axes.tick_params(labelsize=6)
                axes.tick_params(axis="x", rotation=90)
            else:
                axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
                axes.set_yticks(range(first, first + height))
        for axes in grid[:, 0]:
            axes.set_ylabel(rows)
        for axes in grid[-1]:
            axes.set_xlabel(columns)
        figure.colorbar(image, ax=grid, shrink=0.9, label=label)
        return figure

    return draw


def scatter(panels: Mapping[str, Tuple[Any, Any]], groups: str) -> Callable[[], Any]:
    """Return a function that draws points in the plane, a colour per group.

    ``panels`` has the points ``[n, 2]`` of each title, and the group of each, from 0; ``groups`` is
    the title of the legend.
    """

    def draw() -> Any:
        across = min(3, len(panels))
        down = -(-len(panels) // across)
        figure = figure_of(8 / across * down)
        grid = figure.subplots(down, across, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, (title, (points, group)) in zip(grid.flat, panels.items()):
            for number, style in enumerate(styles(map(str, range(int(group.max()) + 1))).values()):
                own = points[group == number]
                axes.scatter(*own.T, s=8, label=str(number + 1), **style)
            axes.set(title=title, xticks=[], yticks=[])
            axes.spines[:].set_visible(True)  # a frame: the next panel is close
            axes.set_aspect("equal", adjustable="datalim")
        _add_legend(figure, "right center", title=groups, markerscale=2)
        return figure

    return draw

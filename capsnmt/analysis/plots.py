"""The figures of analyses: points by layer, matrices, and points in the plane, in panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from capsnmt.pages.plots import WIDTH, figure_of, legend_name, styles

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
COLOUR_MAP = "viridis"  # monotone in lightness: legible in print and with any colour vision


@dataclass(frozen=True)
class Figure:
    """A figure of an analysis, whose panels a subclass draws."""

    name: str  # of its files, without an extension
    caption: str  # the first sentence describes it to readers who do not see it
    panels: Mapping[str, Any]  # title -> what is drawn

    def draw(self) -> Any:
        """Draw it with matplotlib, inside :func:`capsnmt.pages.plots.drawing`."""
        raise NotImplementedError

    def grid(self, most_across: int, height: float = 0, **shared: bool) -> Tuple[Any, Any]:
        """Return a figure and its axes; a row of panels has a height, or they are squares."""
        across = min(most_across, len(self.panels))
        down = -(-len(self.panels) // across)
        figure = figure_of((height or WIDTH / across) * down)
        grid = figure.subplots(down, across, squeeze=False, **shared)
        for axes, title in zip(grid.flat, self.panels):
            axes.set_title(title, fontsize="medium")
        for axes in grid.flat[len(self.panels) :]:
            axes.set_visible(False)
        return figure, grid


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
        return Points(self.name, self.caption, panels, self.label, [*models])


@dataclass(frozen=True)
class Points(Figure):
    """Points by layer: a panel has the layers and numbers of each model."""

    label: str
    models: Sequence[str]  # all of the page, of which each has a colour

    def draw(self) -> Any:
        figure, grid = self.grid(len(self.panels), 3.2, sharey=True)
        style_of = styles(self.models)
        for axes, models in zip(grid[0], self.panels.values()):
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
        grid[0, 0].set_ylabel(self.label)
        _add_legend(figure, "lower center", ncols=4)
        return figure


@dataclass(frozen=True)
class Matrices(Figure):
    """Matrices with one colour scale from 0; NaN is left blank."""

    label: str  # of the colours, with their unit
    rows: str
    columns: str
    first: int = 1  # number of the first row and column
    words: Tuple[Sequence[str], Sequence[str]] = ((), ())  # subwords, in place of the numbers
    highest: float = 0  # the end of the scale; by default the highest number

    def draw(self) -> Any:
        from matplotlib.ticker import MaxNLocator

        same_rows = len({len(matrix) for matrix in self.panels.values()}) == 1
        figure, grid = self.grid(4, 2.7, sharey=same_rows)
        highest = [float(matrix.nan_to_num().max()) for matrix in self.panels.values()]
        for axes, matrix in zip(grid.flat, self.panels.values()):
            low, (height, width) = self.first - 0.5, matrix.shape
            image = axes.imshow(
                matrix.numpy(),
                aspect="equal" if any(self.words) else "auto",
                interpolation="nearest",
                cmap=COLOUR_MAP,
                vmin=0,
                vmax=self.highest or max(highest),
                extent=(low, low + width, low + height, low),
            )
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            axes.set_yticks(range(self.first, self.first + height))
            if any(self.words):
                rows, columns = ([word[:LONGEST_LABEL] for word in axis] for axis in self.words)
                axes.set_yticks(range(self.first, self.first + height), rows)
                axes.set_xticks(range(self.first, self.first + width), columns)
                axes.tick_params(labelsize=6)
                axes.tick_params(axis="x", rotation=90)
        for axes in grid[:, 0]:
            axes.set_ylabel(self.rows)
        for axes in grid[-1]:
            axes.set_xlabel(self.columns)
        figure.colorbar(image, ax=grid, shrink=0.9, label=self.label)
        return figure


@dataclass(frozen=True)
class Scatter(Figure):
    """Points in the plane: a panel has points ``[n, 2]``, and the group of each, from 0."""

    groups: str  # title of the legend

    def draw(self) -> Any:
        figure, grid = self.grid(3)
        for axes, (points, group) in zip(grid.flat, self.panels.values()):
            for number, style in enumerate(styles(map(str, range(int(group.max()) + 1))).values()):
                own = points[group == number]
                axes.scatter(*own.T, s=8, label=str(number + 1), **style)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)  # a frame: the next panel is close
            axes.set_aspect("equal", adjustable="datalim")
        _add_legend(figure, "right center", title=self.groups, markerscale=2)
        return figure


def _add_legend(figure: Any, place: str, **options: Any) -> None:
    """Add what the panels show, each label once."""
    entries = (zip(*axes.get_legend_handles_labels()) for axes in figure.axes)
    found = {label: handle for of_panel in entries for handle, label in of_panel}
    figure.legend(found.values(), found, loc=f"outside {place}", frameon=False, **options)

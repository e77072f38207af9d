"""Drawing shared by analyses: points by layer, and heat maps side by side."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np
from torch import Tensor

from capsnmt.report.figures import figure_of, styles

NAMES = {
    "enc-self": "encoder self-attention",
    "enc-dec": "encoder-decoder attention",
    "dec-self": "decoder self-attention",
}
LONGEST_LABEL = 14  # characters on an axis
# title of a panel -> system -> layer and value of each point
Points = Dict[str, Dict[str, List[Tuple[int, float]]]]
COLOUR_MAP = "viridis"  # monotone in lightness: legible in print and with any colour vision


def points_by_layer(panels: Points, label: str) -> Callable[[], Any]:
    """Return a function that draws points by layer, and a line through the means of the layers.

    The systems are side by side in each layer, so that they can be compared.

    Args:
        panels: the points; of heads, one for each.
        label: label of the values.
    """

    def draw() -> Any:
        figure = figure_of(3.2)
        systems = list(dict.fromkeys(name for points in panels.values() for name in points))
        distance = min(0.12, 0.6 / len(systems))
        own = styles(systems)
        all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, points) in zip(all_axes, panels.items()):
            for name, heads in points.items():
                number = systems.index(name)
                shift = distance * (number - (len(systems) - 1) / 2)
                by_layer: Dict[int, List[float]] = {}
                for layer, value in heads:
                    by_layer.setdefault(layer, []).append(value)
                layers, values = zip(*heads)
                places = [layer + shift for layer in layers]
                colour = own[name]["color"]
                axes.scatter(places, values, s=10, alpha=0.5, linewidth=0, color=colour)
                axes.plot(
                    [layer + shift for layer in by_layer],
                    [sum(values) / len(values) for values in by_layer.values()],
                    markersize=4,
                    linewidth=1.5,
                    label=name,
                    **own[name],
                )
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("layer")
            axes.set_xticks(sorted({layer for heads in points.values() for layer, _ in heads}))
            axes.grid(alpha=0.2)
            axes.spines[["top", "right"]].set_visible(False)
        all_axes[0].set_ylabel(label)
        handles, names = all_axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
        return figure

    return draw


def heat_maps(
    maps: Mapping[str, Tensor], rows: str, columns: str, first: int = 1
) -> Callable[[], Any]:
    """Return a function that draws matrices side by side with one colour scale from 0.

    Args:
        maps: title of each panel -> its matrix; NaN is left blank.
        rows: label of the rows.
        columns: label of the columns.
        first: number of the first row and column.
    """

    def draw() -> Any:
        figure = figure_of(2.6)
        from matplotlib.ticker import MaxNLocator

        same_rows = len({matrix.size(0) for matrix in maps.values()}) == 1
        panels = figure.subplots(1, len(maps), sharey=same_rows, squeeze=False)[0]
        highest = max(float(matrix.nan_to_num().max()) for matrix in maps.values())
        image = None
        for axes, (title, matrix) in zip(panels, maps.items()):
            low, (height, width) = first - 0.5, matrix.shape
            image = axes.imshow(
                matrix.numpy(),
                aspect="auto",
                interpolation="nearest",
                cmap=COLOUR_MAP,
                vmin=0,
                vmax=highest,
                extent=(low, low + width, low + height, low),
            )
            axes.set_title(title)
            axes.set_xlabel(columns)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            axes.set_yticks(range(first, first + height))
        panels[0].set_ylabel(rows)
        figure.colorbar(image, ax=list(panels), shrink=0.9)
        return figure

    return draw


def attention_of_heads(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], highest: float
) -> Callable[[], Any]:
    """Return a function that draws the weights of a sentence, a panel per head.

    Args:
        weights: ``[H, L, K]``.
        queries: subwords of the rows.
        keys: subwords of the columns.
        highest: the weight that is darkest.
    """

    def draw() -> Any:
        across = min(4, len(weights))
        down = -(-len(weights) // across)
        figure = figure_of(2.1 * down + 0.4)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
        image = None
        for head, axes in enumerate(panels.flat):
            if head >= len(weights):
                axes.set_visible(False)
                continue
            image = axes.imshow(
                weights[head], interpolation="nearest", cmap="Blues", vmin=0, vmax=highest
            )
            axes.set_title(f"head {head + 1}", fontsize=8)
        for axes in panels[:, 0]:
            axes.set_yticks(range(len(queries)), [*map(shortened, queries)], fontsize=6)
        for axes in panels[-1]:
            axes.set_xticks(range(len(keys)), [*map(shortened, keys)], fontsize=6, rotation=90)
        figure.colorbar(image, ax=panels, shrink=0.9).ax.tick_params(labelsize=7)
        return figure

    return draw


def shortened(text: str) -> str:
    """Return the beginning of a long label."""
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"

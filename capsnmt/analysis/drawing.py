"""Drawing shared by analyses: a panel per system, a point per head, a map per iteration."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, Tuple

from torch import Tensor

from capsnmt.report.figures import COLOURS, MARKERS, figure_of

NAMES = {
    "enc-self": "encoder self-attention",
    "enc-dec": "encoder-decoder attention",
    "dec-self": "decoder self-attention",
}
COLOUR_MAP = "viridis"  # monotone in lightness: legible in print and with any colour vision


def panels_by_layer(
    points: Mapping[str, Sequence[Tuple[int, float]]], label: str
) -> Callable[[], Any]:
    """Return a function that draws values by layer, a panel per system with equal axes.

    Args:
        points: system -> layer and value of each head.
        label: label of the values.
    """

    def draw() -> Any:
        figure = figure_of(3.4)
        panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
        for number, (axes, (name, heads)) in enumerate(zip(panels, points.items())):
            colour = COLOURS[number % len(COLOURS)]
            layers = sorted({layer for layer, _ in heads})
            axes.scatter(*zip(*heads), s=16, color=colour, alpha=0.6) if heads else None
            means = [
                sum(values) / len(values)
                for layer in layers
                for values in [[value for at, value in heads if at == layer]]
            ]
            axes.plot(layers, means, color=colour, marker=MARKERS[number % len(MARKERS)])
            axes.set_title(name)
            axes.set_xlabel("layer")
            axes.set_xticks(layers)
            axes.grid(alpha=0.2)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel(label)
        return figure

    return draw


def agreement_maps(maps: Sequence[Tensor]) -> Callable[[], Any]:
    """Return a function that draws C ``[I, N]``, a panel per iteration with one colour scale."""

    def draw() -> Any:
        figure = figure_of(2.6)
        panels = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
        highest = max(float(C.max()) for C in maps)
        image = None
        for number, (axes, C) in enumerate(zip(panels, maps), 1):
            image = axes.imshow(
                C.numpy(),
                aspect="auto",
                interpolation="nearest",
                cmap=COLOUR_MAP,
                vmin=0,
                vmax=highest,
                extent=(0.5, C.size(1) + 0.5, C.size(0) + 0.5, 0.5),
            )
            axes.set_title(f"iteration {number}")
            axes.set_xlabel("output capsule")
        panels[0].set_yticks(range(1, maps[0].size(0) + 1))
        panels[0].set_ylabel("input capsule")
        figure.colorbar(image, ax=list(panels), shrink=0.9)
        return figure

    return draw

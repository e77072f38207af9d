"""The figures of a report: learning curves, and means over seeds by category."""

from types import MappingProxyType
from typing import Any, List, Mapping, Sequence, Tuple

from capsnmt.evaluation.scores import Comparison, Spread
from capsnmt.pages.plots import INK, figure_of, finish, legend_below, legend_name, styles
from capsnmt.runs.learning_curve import LearningCurve

# above this multiple of the lowest loss a curve only shows the initialisation
TALLEST = 2.5
# between the bars of two systems, and at most of all, in the distance of two categories
DISTANCE, MOST = 0.12, 0.8


def learning_curves(curves: Mapping[str, Sequence[LearningCurve]]) -> Any:
    """Draw validation loss (solid) and training loss (dotted), one line for each seed.

    The loss axis ends at ``TALLEST`` times the lowest loss, so that the part where systems differ
    fills the figure, and not the first updates.
    """
    figure, style_of = figure_of(4.5), styles(curves)
    from matplotlib.ticker import StrMethodFormatter

    axes = figure.add_subplot()
    losses: List[float] = []
    for name, seeds in curves.items():
        for curve in seeds:
            train, valid = [*curve.train.values()], [*curve.valid.values()]
            axes.plot([*curve.train], train, ":", color=style_of[name]["color"], linewidth=1.2)
            axes.plot([*curve.valid], valid, "-", linewidth=1.8, markersize=4, **style_of[name])
            losses += train + valid
        axes.plot([], [], "-", markersize=4, label=legend_name(name), **style_of[name])
    axes.plot([], [], "-", color=INK, label="validation")
    axes.plot([], [], ":", color=INK, label="training")
    low = min(losses)
    top = min(max(losses), TALLEST * low)
    margin = 0.05 * (top - low) or 0.1
    axes.set_ylim(low - margin, top + margin)
    axes.set_xlim(left=0)
    axes.set_xlabel("updates")
    axes.set_ylabel("loss of the criterion, bits per target subword")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    finish(axes)
    return figure


def differences(shown: Mapping[str, Mapping[str, Comparison]]) -> Any:
    """Draw the differences to the baseline in BLEU with their 95% intervals, one line a row.

    ``shown`` are comparisons by test set, each of which has a shape, and row. A filled shape is one
    whose corrected p is below 0.05.
    """
    rows = [*next(iter(shown.values()))]
    seeds = {row: each.seeds[0] for row, each in next(iter(shown.values())).items()}
    names = {
        row: f"{row}, 1 seed" if n == 1 < max(seeds.values()) else row for row, n in seeds.items()
    }
    height = 1.2 + len(rows) * (0.25 + 0.15 * len(shown))
    figure, style_of = figure_of(height), styles(shown)
    axes = figure.add_subplot()
    axes.axvline(0, color=INK, linewidth=1)
    for number, (name, compared) in enumerate(shown.items()):
        shift = 0.6 * ((number + 0.5) / len(shown) - 0.5)
        style = {**style_of[name], "linestyle": "none"}
        for place, row in enumerate(rows):
            each = compared[row]
            ends = each.interval or (each.delta, each.delta)
            axes.errorbar(
                each.delta,
                place + shift,
                xerr=[[max(0.0, each.delta - ends[0])], [max(0.0, ends[1] - each.delta)]],
                markersize=6,
                capsize=3,
                elinewidth=1.5,
                fillstyle="full" if each.mark else "none",
                **style,
            )
        axes.plot([], [], label=legend_name(name), fillstyle="none", **style)
    axes.set_yticks(range(len(rows)), [legend_name(names[row]) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("difference in BLEU to the baseline, 95% interval")
    axes.grid(axis="x", alpha=0.2)
    handles, labels = axes.get_legend_handles_labels()
    legend_below(figure, labels, handles)
    return figure


def means_by_category(
    means: Mapping[str, Mapping[str, Spread]],
    categories: Mapping[str, str],
    labels: Tuple[str, str],
    references: Mapping[str, Spread] = MappingProxyType({}),
) -> Any:
    """Draw means over seeds by category, one line for each system.

    A dot is one seed, and a bar reaches from the lowest to the highest. ``means`` are by system and
    key of the category, ``labels`` those of the axes, ``references`` horizontal lines by name.

    **D**: the categories are evenly spaced: 1, 8, 64 and 512 are four settings, not a scale.
    """
    figure, style_of = figure_of(3.8), styles(means)
    axes = figure.add_subplot()
    places = {key: place for place, key in enumerate(categories)}
    most = 1
    for number, (name, found) in enumerate(means.items()):
        # side by side, so that the bars of one system do not hide another's
        shift = min(DISTANCE, MOST / len(means)) * (number - (len(means) - 1) / 2)
        shown = [(places[key] + shift, each) for key, each in found.items()]
        axes.errorbar(
            [x for x, _ in shown],
            [each.mean for _, each in shown],
            yerr=[
                # a mean of equal values may be rounded to either side of them
                [max(0.0, each.mean - min(each.values)) for _, each in shown],
                [max(0.0, max(each.values) - each.mean) for _, each in shown],
            ],
            markersize=5,
            capsize=3,
            label=legend_name(name),
            **style_of[name],
        )
        for x, each in shown:
            most = max(most, len(each.values))
            if len(each.values) > 1:
                seeds = [x] * len(each.values)
                axes.plot(seeds, each.values, ".", color=style_of[name]["color"], markersize=4)
    for number, (name, each) in enumerate(references.items()):
        axes.axhline(
            each.mean, color=INK, linestyle=("--", ":", "-.")[number % 3], label=legend_name(name)
        )
        if each.std:
            axes.axhspan(min(each.values), max(each.values), color=INK, alpha=0.1)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), [*categories.values()])
    axes.set_xlabel(labels[0])
    spread = "one seed" if most == 1 else f"mean of up to {most} seeds, lowest to highest"
    axes.set_ylabel(f"{labels[1]}\n({spread})")
    finish(axes)
    return figure

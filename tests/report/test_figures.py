"""No line, bar or name of a figure hides another, and a system keeps its style."""

from __future__ import annotations

import pytest

from capsnmt.evaluation.scores import Spread
from capsnmt.report.figures import (
    accuracy_by_operators,
    bleu_by_value,
    drawing,
    image,
    learning_curves,
    style,
    styles,
)
from capsnmt.runs.learning_curve import LearningCurve


def test_a_system_keeps_its_style_in_a_figure_that_leaves_another_out() -> None:
    with drawing(["a", "b", "c"]):
        (together, alone) = styles(["a", "b", "c"]), styles(["c", "b"])
        assert alone == {name: together[name] for name in ("c", "b")}
    assert styles(["c", "b"])["c"] == together["a"]
    assert len({tuple(style(number).values()) for number in range(49)}) == 49


@pytest.mark.parametrize("length", [1, 33, 60])
@pytest.mark.parametrize("count", [2, 9, 30])
def test_the_names_of_many_systems_cover_no_line(count: int, length: int) -> None:
    curves = {
        f"{number:02}" + "e" * length: [LearningCurve({1: 1.0 + number, 2: 1.0})]
        for number in range(count)
    }
    with drawing():
        figure = learning_curves(curves)
        image(figure, "png")
        (axes,) = figure.axes
        (legend,) = figure.legends or [axes.get_legend()]
        assert [text.get_text() for text in legend.get_texts()] == list(curves)
        names, plot = (each.get_window_extent() for each in (legend, axes))
    assert names.overlaps(plot) == (count == 2)
    assert plot.height > 3 * 150  # pixels: the names do not shrink it
    assert names.xmin >= 0
    assert names.xmax <= figure.bbox.xmax


def test_the_bars_of_one_system_hide_no_others_and_end_at_100_percent() -> None:
    found = {1: Spread(95.0, 15.0, []), 2: Spread(60.0, None, []), 3: None}
    (axes,) = accuracy_by_operators({"one": found, "other": found}, 50.0).axes
    places = [bars.lines[0].get_xdata() for bars in axes.containers]
    assert [len(place) for place in places] == [2, 2]
    assert all(0 < right - left < 1 for left, right in zip(*places))
    assert axes.get_ylim()[1] <= 101
    assert list(axes.get_xticks()) == [1, 2, 3]


def test_the_figure_has_every_value_seed_and_baseline() -> None:
    curve = {"1": Spread(20.0, 1.0, [19.0, 21.0]), "512": Spread(25.0, None, [25.0])}
    with drawing():
        figure = bleu_by_value(
            "--layer-capsules",
            ["1", "8", "512"],
            {"one": curve, "other": {"8": Spread(22.0, None, [22.0])}},
            {"baseline": Spread(18.0, 0.5, [17.5, 18.5])},
        )
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "8", "512"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("baseline", "one", "other")
    ]
    (low, high), *_ = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "None"
                       and len(line.get_ydata()) == 2 and line.get_marker() == "."]  # fmt: skip
    assert (low, high) == (19.0, 21.0)

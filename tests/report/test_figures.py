"""The report's figures: the same each time, in the page's colours, one line per system."""

from __future__ import annotations

import re
from typing import Dict, List
from xml.etree import ElementTree

import pytest

from capsnmt.evaluation.lengths import BUCKETS
from capsnmt.evaluation.scores import SourceLengths
from capsnmt.evaluation.seeds import Spread
from capsnmt.report.figures import (
    METADATA,
    accuracy_by_operators,
    bleu_by_length,
    drawing,
    image,
    learning_curves,
    style,
    styles,
    svg,
)
from capsnmt.runs.learning_curve import LearningCurve

CURVES = {
    "two systems": {
        "a": [LearningCurve({10: 9.0, 20: 5.0}, {20: 5.5})],
        "bä│<b>": [LearningCurve({10: 9.0, 20: 6.0})],
    },
    "one point": {"one point": [LearningCurve({10: 9.0})]},
    "two seeds": {"a": [LearningCurve({10: 9.0}, {10: 9.1}), LearningCurve({10: 8.0}, {10: 8.1})]},
    "more systems than colours": {
        str(number): [LearningCurve({1: 1.0 + number, 2: 1.0})] for number in range(9)
    },
}


@pytest.mark.parametrize("name", CURVES)
def test_a_picture_is_the_same_each_time(name: str) -> None:
    curves: Dict[str, List[LearningCurve]] = CURVES[name]
    drawn = []
    for _ in range(2):
        with drawing():
            figure = learning_curves(curves)
            drawn.append(tuple(image(figure, kind) for kind in METADATA))
    assert drawn[0] == drawn[1]
    assert drawn[0][0].startswith(b"\x89PNG\r\n\x1a\n")


def test_a_picture_of_other_curves_differs() -> None:
    pictures = []
    for valid in (5.5, 6.5):
        with drawing():
            curve = LearningCurve({10: 9.0, 20: 5.0}, {10: 9.0, 20: valid})
            pictures.append(svg(image(learning_curves({"a": [curve]}), "svg"), "x"))
    assert pictures[0] != pictures[1]


def test_an_svg_is_valid_takes_the_pages_ink_and_keeps_names_as_text() -> None:
    with drawing():
        picture = svg(image(learning_curves(CURVES["two systems"]), "svg"), "one/two")
    root = ElementTree.fromstring(picture.replace("xlink:href", "href"))
    assert "currentColor" in picture
    assert "#010203" not in picture
    assert "#ffffff" not in picture  # the page may be dark
    assert "bä│<b>" in [
        "".join(each.itertext()) for each in root.iter() if each.tag.endswith("text")
    ]
    identifiers = re.findall(r'\bid="([^"]+)"', picture)
    assert all(each.startswith("one-two-") for each in identifiers)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', picture)) <= set(identifiers)
    assert not re.search(r'(href|src)="(?!#)', picture)


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


def test_lengths_without_a_sentence_are_not_drawn() -> None:
    lengths = SourceLengths("words", BUCKETS, (7, 0, 2, 0, 0, 0))
    with drawing():
        picture = svg(
            image(bleu_by_length({"a": [20.0, None, 10.0, *[None] * 3]}, lengths), "svg"), "x"
        )
    assert "&lt;10" in picture
    assert "(7)" in picture
    assert "20-30" in picture
    assert "10-20" not in picture


def test_the_bars_of_one_system_hide_no_others_and_end_at_100_percent() -> None:
    found = {1: Spread(95.0, 15.0, []), 2: Spread(60.0, None, []), 3: None}
    (axes,) = accuracy_by_operators({"one": found, "other": found}, 50.0).axes
    places = [bars.lines[0].get_xdata() for bars in axes.containers]
    assert [len(place) for place in places] == [2, 2]
    assert all(0 < right - left < 1 for left, right in zip(*places))
    assert axes.get_ylim()[1] <= 101
    assert list(axes.get_xticks()) == [1, 2, 3]

"""No name of a figure hides a line, a system keeps its style, and the page may be dark."""

from __future__ import annotations

import pytest

from capsnmt.pages.plots import drawing, figure_of, finish, images, inline_svg, styles


def test_systems_have_different_styles() -> None:
    found = styles(f"system {number}" for number in range(49))
    assert len({tuple(style.values()) for style in found.values()}) == 49


@pytest.mark.parametrize("length", [1, 33, 60])
@pytest.mark.parametrize("count", [2, 9, 30])
def test_the_names_of_many_systems_cover_no_line(count: int, length: int) -> None:
    names = [f"{number:02}" + "e" * length for number in range(count)]
    with drawing():
        figure = figure_of(4.5)
        axes = figure.add_subplot()
        for number, name in enumerate(names):
            axes.plot([0, 1], [number, 0], label=name)
        finish(axes)
        images(figure)
        (legend,) = figure.legends or [axes.get_legend()]
        assert [text.get_text() for text in legend.get_texts()] == names
        inside, plot = (each.get_window_extent() for each in (legend, axes))
    assert inside.overlaps(plot) == (count == 2)
    assert plot.height > 3 * figure.dpi  # the names do not shrink it
    assert inside.xmin >= 0
    assert inside.xmax <= figure.bbox.xmax


def test_a_figure_takes_the_pages_ink_and_keeps_names_as_text() -> None:
    with drawing():
        figure = figure_of(3)
        figure.add_subplot().set_title("a $name$")
        files = images(figure)
    assert files["png"].startswith(b"\x89PNG")
    assert b"#ffffff" in files["svg"]  # the file is readable on a dark page, too
    drawn = inline_svg(files["svg"], "one")
    assert "currentColor" in drawn
    assert "#010203" not in drawn
    assert ">a $name$</text>" in drawn

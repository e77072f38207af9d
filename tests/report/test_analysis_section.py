"""A report links the analysis that lies in its folder, and shows its maps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.report.analysis_section import CAPTIONS, FIGURES, analysis
from capsnmt.report.figures import drawing, figure_of, image
from capsnmt.report.page import write_page
from tests.html_pages import Page

NAMES = ("distance", "agreement-em-1", "attention-sentence-em")


def write_analysis(folder: Path) -> None:
    """What ``capsnmt-analyse`` writes, as far as a report reads it."""
    (folder / FIGURES).mkdir(parents=True)
    (folder / "analysis.html").write_text("the page", "utf-8")
    captions = {name: {"alt": f"alt of {name}", "caption": f"caption of {name}"} for name in NAMES}
    (folder / FIGURES / CAPTIONS).write_text(json.dumps(captions), "utf-8")
    for name in NAMES:
        with drawing():
            figure = figure_of(1)
            figure.text(0, 0, f"text of {name}")
            (folder / FIGURES / f"{name}.svg").write_bytes(image(figure, "svg"))


@pytest.mark.parametrize("place", ["", "analysis/"])
def test_the_maps_and_the_page_of_an_analysis_are_in_the_report(tmp_path: Path, place: str) -> None:
    write_analysis(tmp_path / place)
    content = write_page(list(analysis(tmp_path)), tmp_path, "report").read_text("utf-8")
    page = Page(content)
    assert f"{place}analysis.html" in [each["href"] for each in page.all("a")]
    assert len(page.all("svg")) == 2
    for name in NAMES[1:]:
        assert f">text of {name}</text>" in content
        assert f">caption of {name}</figcaption>" in content
    assert "text of distance" not in content
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert f"[page of the analysis]({place}analysis.html)" in markdown
    assert f"![alt of agreement-em-1]({place}figures/agreement-em-1.png)" in markdown


def test_without_an_analysis_the_report_does_not_mention_it(tmp_path: Path) -> None:
    assert list(analysis(tmp_path)) == []


@pytest.mark.parametrize("damage", ["no figure", "no caption", "no svg", "not a caption"])
def test_a_damaged_analysis_is_one_line_with_the_fix(tmp_path: Path, damage: str) -> None:
    write_analysis(tmp_path)
    figure = tmp_path / FIGURES / "agreement-em-1.svg"
    captions = tmp_path / FIGURES / CAPTIONS
    if damage == "no figure":
        figure.unlink()
    elif damage == "no svg":
        figure.write_bytes(b"\xff")
    else:
        found = "x" if damage == "not a caption" else {"alt": "a"}
        captions.write_text(json.dumps({"agreement-em-1": found}), "utf-8")
    with pytest.raises(ConfigurationError, match=r"agreement-em-1.*run capsnmt-analyse again"):
        list(analysis(tmp_path))

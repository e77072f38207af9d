"""The page is one file with the content of the Markdown, accessible, and works in a browser."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, List

import pytest

from capsnmt.report import __main__ as report
from tests.html_pages import Page, contrast, luminance
from tests.report.finished_runs import SENTENCES, SOURCES, TRANSLATIONS, edit, write_generated

EVIL = "</code><script>alert(1)</script><img src=http://evil.example/x> & \"'"


def write(output: Path, *flags: str) -> Path:
    folder = output / "report"
    assert report.main([str(output), "--output", str(folder), *flags]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def folder(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on runs of which every text that a user may choose is hostile."""
    output = tmp_path_factory.mktemp("hostile") / "output"
    shutil.copytree(finished, output)
    translations = [EVIL, *TRANSLATIONS["em_routing"][1:]]
    write_generated(output / "em_routing/seed-1/generate-test.txt", translations)
    run = output / "em_routing/seed-1"
    edit(run / "config.json", lambda config: config.update(command=["x", EVIL]))
    edit(run / "training.json", lambda training: training.update({"device-name": EVIL}))
    return write(output, "--title", EVIL, "--samples", str(SENTENCES)).parent


@pytest.fixture(scope="module")
def content(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


def test_the_page_loads_nothing_and_runs_nothing(content: str) -> None:
    page = Page(content)
    assert page.all("script") == page.all("img") == page.all("iframe") == []
    assert "default-src 'none'" in str(page.all("meta"))
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert str(value).startswith(("#", "data:,"))
    assert "url(http" not in content
    assert "@import" not in content


def test_every_text_is_shown_as_it_is(content: str) -> None:
    shown = html.unescape(re.sub(r"<[^>]*>", "", content))
    # the title twice, a translation, the command, the device
    assert shown.count(EVIL) == 5
    assert shlex.quote(EVIL) in shown
    assert SOURCES[3] in shown


def test_the_page_works_with_a_screen_reader(content: str) -> None:
    page = Page(content)
    assert page.all("html")[0]["lang"] == "en"
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    pictures = [each for each in page.all("div") if each.get("role") == "img"]
    assert len(pictures) == len(page.all("svg")) == 2
    assert all(len(str(each["aria-label"])) > 20 for each in pictures)
    assert all(each.get("aria-hidden") == "true" for each in page.all("svg"))
    assert {each.get("lang") for each in page.all("td")} == {None, "en", "de"}
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in zip(headings, headings[1:]))


def test_every_link_and_label_has_its_target_once(content: str) -> None:
    page = Page(content)
    identifiers = [str(each["id"]) for _, each in page.elements if "id" in each]
    assert len(identifiers) == len(set(identifiers))
    wanted = [str(each["href"])[1:] for each in page.all("a")]
    wanted += [str(each["aria-labelledby"]) for each in page.all("section")]
    assert wanted
    wanted += re.findall(r'(?:href="#|url\(#)([^")]+)', content)
    assert set(wanted) <= set(identifiers)


def test_the_page_and_the_markdown_hold_the_same_numbers(folder: Path, content: str) -> None:
    markdown = (folder / "report.md").read_text("utf-8")
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", content)
    cells = [re.sub(r"<[^>]+>", " ", row).split() for row in rows]
    numbers = {cell for row in cells for cell in row if re.fullmatch(r"[+−]?\d+\.\d\d[†‡]?", cell)}
    assert len(numbers) > 5
    assert all(number.rstrip("†‡") in markdown for number in numbers)


def test_figures_take_the_pages_ink_and_keep_names_as_text(content: str) -> None:
    """Learning curves have both systems; a length that no sentence has is not drawn."""
    curves, lengths = re.findall(r"<svg .*?</svg>", content, re.DOTALL)
    for picture in (curves, lengths):
        assert "currentColor" in picture
        assert not re.search("#010203|#ffffff", picture)  # the page may be dark
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
        assert {"baseline", "em_routing"} <= set(texts)
    assert "&lt;10" in lengths
    assert "10-20" not in lengths


NAMES = ("distance", "agreement-em-1", "attention-sentence-em")


@pytest.mark.parametrize("place", ["", "analysis/"])
def test_the_maps_of_an_analysis_in_the_folder_are_in_the_report(output: Path, place: str) -> None:
    figures = output / "report" / place / "figures"
    figures.mkdir(parents=True)
    (figures.parent / "analysis.html").write_text("the page", "utf-8")
    captions = {name: {"alt": f"alt of {name}", "caption": f"caption of {name}"} for name in NAMES}
    (figures / "captions.json").write_text(json.dumps(captions), "utf-8")
    for name in NAMES:
        drawn = f'<svg width="9pt" height="9pt"><text>text of {name}</text></svg>'
        (figures / f"{name}.svg").write_text(drawn, "utf-8")
    content = write(output).read_text("utf-8")
    assert f"{place}analysis.html" in [each["href"] for each in Page(content).all("a")]
    for name in NAMES[1:]:
        assert f">text of {name}</text>" in content
        assert f">caption of {name}</figcaption>" in content
    assert "text of distance" not in content
    markdown = (output / "report" / "report.md").read_text("utf-8")
    assert f"[page of the analysis]({place}analysis.html)" in markdown
    assert f"![alt of agreement-em-1]({place}figures/agreement-em-1.png)" in markdown
    (figures / "agreement-em-1.svg").unlink()
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert report.main([str(output), "--output", str(output / "report")]) == 2
    assert re.fullmatch(r"error: .*agreement-em-1.*run capsnmt-analyse again\n", said.getvalue())


@pytest.mark.system
@pytest.mark.one_host  # the page is the same on both
def test_a_browser_shows_the_page_without_an_error_or_an_outside_request(
    folder: Path, browser: Any
) -> None:
    messages: List[str] = []
    requests: List[str] = []
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda request: requests.append(request.url))
    page.goto((folder / "report.html").as_uri())
    page.wait_for_load_state("networkidle")
    assert page.title() == EVIL
    # elements wider than a telephone scroll by themselves
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = page.locator("figure svg").all()
    assert len(boxes) == 2
    for box in boxes:
        size = box.bounding_box()
        assert size["width"] > 300
        assert size["height"] > 120
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink, paper = page.evaluate(
            "[getComputedStyle(document.querySelector('figure svg text')).fill,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert contrast(ink, paper) > 7
        assert (luminance(paper) < 0.5) == (scheme == "dark")
    assert messages == []
    assert requests == [(folder / "report.html").as_uri()]
    page.close()

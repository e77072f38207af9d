"""The browser of sentences in the analysis page shows the numbers of sentences.json."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.analysis.conftest import NAMES, OTHER
from tests.html_pages import contrast

pytestmark = pytest.mark.system
PARTS = ("attention", "coefficients")
# One call for all choices: a step of the browser's driver takes longer than a map.
EXPLORE = """([part]) => {
    const root = document.getElementById(`browser-${part}`);
    const panes = [...root.querySelectorAll(".map")];
    const shown = () => panes.map((pane) => pane.hidden ? null
        : [...pane.querySelectorAll("tbody tr")].map(
            (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent)));
    const found = [];
    const visit = (chosen) => {
        const select = root.querySelectorAll("select")[chosen.length];
        if (!select) return found.push([chosen, shown()]);
        for (const { value, text } of [...select.options]) {
            root.querySelectorAll("select")[chosen.length].value = value;
            select.dispatchEvent(new Event("change", { bubbles: true }));
            visit([...chosen, text]);
        }
    };
    visit([]);
    return found;
}"""


@contextmanager
def opened(browser: Any, folder: Path, width: int = 1280) -> Iterator[Any]:
    """Open the page; it must neither complain nor ask for another file."""
    messages: List[str] = []
    requests: List[str] = []
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda request: requests.append(request.url))
    page.goto((folder / "analysis.html").as_uri())
    try:
        yield page
        assert messages == []
        assert requests == [(folder / "analysis.html").as_uri()]
    finally:
        page.close()


def choose(page: Any, **labels: str) -> None:
    for name, label in labels.items():
        page.select_option(f"#browser-body select[name={name}]", label=label)


@pytest.fixture(scope="module")
def sentences(folder: Path) -> Any:
    return json.loads((folder / "sentences.json").read_text("utf-8"))["sentences"]


def texts(values: List[List[float]], highest: float, percent: bool = True) -> List[List[str]]:
    """Return a map as its cells show it."""
    digits = 0 if percent and highest >= 0.1 else 1
    lines = [[f"{value * (100 if percent else 1):.{digits}f}" for value in row] for row in values]
    return [["" if float(text) == 0 else text for text in line] for line in lines]


def leaves(values: Any) -> List[float]:
    return [x for each in values for x in leaves(each)] if isinstance(values, list) else [values]


@pytest.mark.parametrize("part", PARTS)
def test_each_choice_shows_its_numbers(
    browser: Any, folder: Path, sentences: Any, part: str
) -> None:
    with opened(browser, folder) as page:
        page.select_option("#browser-body select[name=sentence]", index=1)
        choose(page, left=NAMES[1], right=NAMES[2])
        found: Dict[Tuple[str, ...], Any] = {
            tuple(chosen): panes for chosen, panes in page.evaluate(EXPLORE, [part])
        }
    both = [sentences[1]["systems"][NAMES.index(name)][part] for name in NAMES[1:]]
    shown = 0
    for side, of_model in enumerate(both):
        for each in of_model:
            same = [other for maps in both for other in maps if other["name"] == each["name"]]
            highest = max(max(leaves(other["values"])) for other in same)
            for place in product(*(range(len(axis["labels"])) for axis in each["choices"])):
                values = each["values"]
                for index in place:
                    values = values[index]
                labels = (a["labels"][index] for a, index in zip(each["choices"], place))
                cells = found[(each["name"], *labels)][side]
                for line, expected in zip(cells, texts(values, highest)):
                    for text, number in zip(line, expected):  # halves round up in JavaScript
                        assert abs(float(text or 0) - float(number or 0)) <= 1.001 * (
                            1 if highest >= 0.1 else 0.1
                        )
                assert [len(line) for line in cells] == [len(line) for line in values]
                shown += 1
    assert shown == sum(side is not None for panes in found.values() for side in panes)


def test_a_cell_is_shaded_by_its_number(browser: Any, folder: Path, sentences: Any) -> None:
    each = sentences[0]["systems"][0]["attention"][0]
    highest = max(leaves(each["values"]))
    with opened(browser, folder) as page:
        choose(page, left=NAMES[0], right=NAMES[0], head="2")
        shares = page.eval_on_selector_all(
            "#browser-attention .map:first-of-type td",
            "cells => cells.map(each => +each.style.getPropertyValue('--share'))",
        )
    expected = [value / highest for value in leaves(each["values"][2])]
    assert shares[: len(expected)] == pytest.approx(expected, abs=6e-4)


def test_two_systems_share_the_cursor_from_the_keyboard_and_the_mouse(
    browser: Any, folder: Path, sentences: Any
) -> None:
    maps = [sentences[0]["systems"][side]["attention"][0] for side in (0, 1)]
    with opened(browser, folder) as page:
        readouts = page.locator("#browser-attention .readout")
        areas = page.locator("#browser-attention .map")
        choose(page, left=NAMES[0], right=NAMES[1])
        page.focus("#browser-attention select[name=head]")
        page.keyboard.press("Tab")  # to the first map
        for key in ("ArrowDown", "End", "ArrowLeft"):
            page.keyboard.press(key)
        column = len(maps[0]["columns"]["labels"]) - 2
        for side, each in enumerate(maps):
            readout = readouts.nth(side).inner_text()
            assert readout.startswith("query 2 “")
            assert f"key {column + 1} “" in readout
            assert float(readout.rpartition(": ")[2]) == each["values"][0][1][column]
            assert areas.nth(side).locator("td.here").count() == 1
        areas.nth(1).locator("td").first.hover()
        for side, each in enumerate(maps):
            readout = readouts.nth(side).inner_text()
            assert float(readout.rpartition(": ")[2]) == each["values"][0][0][0]
        # without a mouse: a menu changes what is shown, and the cursor stays
        page.focus("#browser-attention select[name=head]")
        page.keyboard.press("ArrowDown")
        readout = readouts.first.inner_text()
        assert float(readout.rpartition(": ")[2]) == maps[0]["values"][1][0][0]


def test_systems_with_other_subwords_each_show_their_own(
    browser: Any, folder: Path, sentences: Any
) -> None:
    both = [sentences[0]["systems"][side] for side in (0, 3)]
    with opened(browser, folder) as page:
        choose(page, left=NAMES[0], right=OTHER)
        shown = page.locator("#browser-texts").inner_text()
        for side, one in enumerate(both):
            assert f"source: {' '.join(one['source'])}" in shown
            assert f"reference: {' '.join(one['target'])}" in shown
            cells = page.locator("#browser-loss .map").nth(side).locator("td").all_inner_texts()
            losses = one["loss"][0]["values"][0]
            assert [float(text) for text in cells] == pytest.approx(losses, abs=0.051)


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_is_readable(browser: Any, folder: Path, width: int) -> None:
    with opened(browser, folder, width) as page:
        page.focus("#browser-attention .map >> nth=0")
        # what is wider than the screen scrolls by itself
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for select in page.locator("select:visible").all():
            box = select.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        papers = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            papers.add(paper)
            inks = page.evaluate(
                "[...document.querySelectorAll('.map th, .readout, select, label, .figure + em')]"
                ".map(each => getComputedStyle(each).color)"
                ".concat([...document.querySelectorAll('.figure svg text')]"
                ".map(each => getComputedStyle(each).fill))"
            )
            assert min(contrast(ink, paper) for ink in set(inks)) > 4.5
            # the number in the darkest cell
            tint, ink = page.evaluate(
                "[`rgb(${getComputedStyle(document.documentElement).getPropertyValue('--tint')})`,"
                "getComputedStyle(document.querySelector('.map td')).color]"
            )
            assert contrast(ink, tint) > 4.5
        assert len(papers) == 2


def test_without_javascript_the_figures_are_there_and_the_page_says_what_is_not(
    browser: Any, folder: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "analysis.html").as_uri())
    assert page.locator("noscript p").is_visible()
    assert not page.locator("#browser-body").is_visible()
    for figure in page.locator(".figure svg").all():
        size = figure.bounding_box()
        assert min(size["width"], size["height"]) > 100
    context.close()

"""The browser of sentences in the analysis page shows the numbers of the CSV files."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Set, Tuple

import pytest

from tests.analysis.conftest import NAMES, OTHER
from tests.html_pages import contrast

pytestmark = pytest.mark.system
Key = Tuple[str, ...]


def read_csv(path: Path) -> List[Dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def maps(path: Path, keys: List[str], values: str) -> Dict[Key, List[List[float]]]:
    """Return the maps of a CSV file by the values of some columns."""
    found: Dict[Key, List[List[float]]] = {}
    for row in read_csv(path):
        line = [float(value) for value in row[values].split()]
        found.setdefault(tuple(row[key] for key in keys), []).append(line)
    return found


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


def choose(page: Any, **values: str) -> None:
    for name, value in values.items():
        if page.input_value(f"select[name={name}]") != value:
            page.select_option(f"select[name={name}]", value)


def options(page: Any, name: str) -> List[str]:
    return page.eval_on_selector_all(
        f"select[name={name}] option", "options => options.map(each => each.value)"
    )


def unfold(page: Any) -> None:
    folded = page.locator(".pane details:not([open]) summary:visible")
    while folded.count():
        folded.first.click()


def numbers(page: Any, pane: str) -> List[List[float]]:
    """Return the numbers of a map as the page lists them."""
    return page.eval_on_selector_all(
        f"#{pane} tbody tr",
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => +cell.textContent))",
    )


# One call for all choices: a step of the browser's driver takes longer than a map.
EXPLORE = """([pane, names]) => {
    const numbers = (root) => root.querySelector(".map").getClientRects().length === 0 ? null
        : [...root.querySelectorAll("tbody tr")].map(
            (row) => [...row.querySelectorAll("td")].map((cell) => +cell.textContent));
    const panes = ["left", "right"].map((side) => document.getElementById(`${pane}-${side}`));
    const visit = (chosen) => {
        if (chosen.length === names.length) return [[chosen, panes.map(numbers)]];
        const select = document.querySelector(`select[name=${names[chosen.length]}]`);
        return [...select.options].flatMap(({ value }) => {
            select.value = value;
            select.dispatchEvent(new Event("change", { bubbles: true }));
            return visit([...chosen, value]);
        });
    };
    for (const root of panes) root.querySelector("details").open = true;
    return visit([]);
}"""


def explore(page: Any, pane: str, names: List[str]) -> Dict[Key, List[Any]]:
    """Choose every combination of the values of some selects.

    Returns:
        The numbers of the left and the right map by combination, ``None`` for a hidden map.
    """
    found = page.evaluate(EXPLORE, [pane, names])
    return {tuple(chosen): panes for chosen, panes in found}


def of_systems(keys: Iterable[Key]) -> Set[Key]:
    """Return the (system, sentence) of keys, which must be those of both systems."""
    found = {key[:2] for key in keys}
    assert {name for name, _ in found} == {*NAMES[1:]}
    return found


def sentence_numbers(folder: Path) -> List[str]:
    return sorted({row["sentence"] for row in read_csv(folder / "sentences.csv")}, key=int)


def test_each_sentence_attention_layer_and_head_shows_its_weights(
    browser: Any, folder: Path
) -> None:
    keys = ["system", "sentence", "attention", "layer", "head"]
    written = maps(folder / "maps.csv", keys, "weights")
    numbered = sentence_numbers(folder)
    with opened(browser, folder) as page:
        choose(page, sentence="1", left=NAMES[1], right=NAMES[2])
        shown = explore(page, "attention", ["attention", "layer", "head"])
        found = {
            (name, numbered[1], *key): weights
            for key, panes in shown.items()
            for name, weights in zip(NAMES[1:], panes)
            if key[-1] != "mean"
        }
        assert found == {key: written[key] for key in written if key[:2] in of_systems(found)}
        # another sentence keeps the other choices
        unfold(page)
        choose(page, sentence="2")
        last = [*shown][-1]
        for pane, name in zip(("left", "right"), NAMES[1:]):
            assert numbers(page, f"attention-{pane}") == written[(name, numbered[2], *last)]


def test_each_place_iteration_and_token_shows_its_coefficients(browser: Any, folder: Path) -> None:
    keys = ["system", "sentence", "place", "layer", "iteration", "of"]
    written = maps(folder / "couplings.csv", keys, "coefficients")
    number = sentence_numbers(folder)[1]
    with opened(browser, folder) as page:
        choose(page, sentence="1", left=NAMES[1], right=NAMES[2])
        shown = explore(page, "couplings", ["place", "iteration", "choice"])
    found = {
        (name, number, *place.rsplit(" ", 1), iteration, choice): coefficients
        for (place, iteration, choice), panes in shown.items()
        for name, coefficients in zip(NAMES[1:], panes)
        if coefficients is not None
    }
    assert found == {key: written[key] for key in written if key[:2] in of_systems(found)}


def test_a_map_is_drawn_as_its_numbers(browser: Any, folder: Path) -> None:
    with opened(browser, folder) as page:
        unfold(page)
        left, right = (numbers(page, f"attention-{side}") for side in ("left", "right"))
        highest = max(value for rows in (*left, *right) for value in rows)
        assert page.inner_text("#attention-legend .most") == f"{highest:.3f}, in both maps"
        for side, rows in (("left", left), ("right", right)):
            opacities = page.eval_on_selector_all(
                f"#attention-{side} .cells rect",
                "cells => cells.map(cell => +cell.getAttribute('fill-opacity'))",
            )
            drawn = [value / highest for row in rows for value in row if value]
            assert opacities == pytest.approx(drawn, abs=6e-4)
        choose(page, head="mean")
        heads = []
        for head in options(page, "head")[1:]:
            choose(page, head=head)
            heads.append(numbers(page, "attention-left"))
        choose(page, head="mean")
        for r, row in enumerate(numbers(page, "attention-left")):
            means = [sum(head[r][c] for head in heads) / len(heads) for c in range(len(row))]
            assert row == pytest.approx(means, abs=6e-4)


def test_two_systems_share_scale_and_cursor_from_the_keyboard_and_the_mouse(
    browser: Any, folder: Path
) -> None:
    with opened(browser, folder) as page:
        choose(page, left=NAMES[0], right=NAMES[1])
        unfold(page)
        left, right = (numbers(page, f"attention-{side}") for side in ("left", "right"))
        page.focus("select[name=choice]")
        page.focus("#attention-left .map")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        column = len(left[0]) - 2
        for side, rows in (("left", left), ("right", right)):
            readout = page.inner_text(f"#attention-{side} .readout")
            assert readout.startswith("query 2 “")
            assert f"key {column + 1} “" in readout
            assert readout.endswith(f": {rows[1][column]:.3f}")
        cell = page.locator("#attention-right .cells rect").first.bounding_box()
        page.mouse.move(cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2)
        for side, rows in (("left", left), ("right", right)):
            assert page.inner_text(f"#attention-{side} .readout").endswith(f": {rows[0][0]:.3f}")
        # without a mouse: a select changes what is shown, and the cursor stays
        page.focus("select[name=head]")
        page.keyboard.press("ArrowDown")
        assert page.input_value("select[name=head]") == "2"
        after = numbers(page, "attention-left")
        assert after != left
        assert page.inner_text("#attention-left .readout").endswith(f": {after[0][0]:.3f}")


def test_losses_are_those_of_the_csv(browser: Any, folder: Path) -> None:
    number = sentence_numbers(folder)[2]
    rows = [
        row
        for row in read_csv(folder / "sentences.csv")
        if (row["sentence"], row["side"]) == (number, "target")
    ]
    with opened(browser, folder) as page:
        choose(page, sentence="2", left=NAMES[0], right=NAMES[2])
        shown = page.eval_on_selector_all(
            "#losses tbody tr",
            "rows => rows.map(row => [...row.cells].map(c => c.textContent))",
        )
        by_system = [
            [(row["token"], float(row["loss"])) for row in rows if row["system"] == name]
            for name in (NAMES[0], NAMES[2])
        ]
        assert [(token, float(loss)) for token, loss, _ in shown] == by_system[0]
        assert [(token, float(loss)) for token, _, loss in shown] == by_system[1]
        assert page.inner_text("#text-target") == " ".join(token for token, _ in by_system[0])


def test_systems_with_other_subwords_each_show_their_own(browser: Any, folder: Path) -> None:
    rows = [row for row in read_csv(folder / "sentences.csv") if row["sentence"] == "0"]
    with opened(browser, folder) as page:
        choose(page, left=NAMES[0], right=OTHER)
        cells = page.eval_on_selector_all(
            "#losses tbody tr",
            "rows => rows.map(row => [...row.cells].map(c => c.textContent))",
        )
        for column, name in ((1, NAMES[0]), (2, OTHER)):
            of_target = [
                f"{row['token']} {float(row['loss']):.3f}"
                for row in rows
                if (row["system"], row["side"]) == (name, "target")
            ]
            assert [line[column] for line in cells[: len(of_target)]] == of_target
            assert all(line[column] == "–" for line in cells[len(of_target) :])
            sources = [
                row["token"] for row in rows if (row["system"], row["side"]) == (name, "source")
            ]
            assert " ".join(sources) in page.inner_text("#text-source").split("\n")


@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_is_readable(browser: Any, folder: Path, width: int) -> None:
    with opened(browser, folder, width) as page:
        unfold(page)
        page.focus("#attention-left .map")
        # what is wider than the screen scrolls by itself
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for select in page.locator("select").all():
            box = select.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        papers = set()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            papers.add(paper)
            inks = page.evaluate(
                "[...document.querySelectorAll('.map text, figure svg text')]"
                ".map(each => getComputedStyle(each).fill).concat("
                "[...document.querySelectorAll('.readout, select, label, .legend, #losses td')]"
                ".map(each => getComputedStyle(each).color))"
            )
            assert min(contrast(ink, paper) for ink in set(inks)) > 4.5
            mark = page.evaluate("getComputedStyle(document.querySelector('.cells rect')).fill")
            assert contrast(mark, paper) > 7
        assert len(papers) == 2
        sizes = page.evaluate(
            "[...document.querySelectorAll('.map text')]"
            ".map(each => parseFloat(getComputedStyle(each).fontSize))"
        )
        assert min(sizes) >= 11


def test_without_javascript_the_figures_are_there_and_the_page_says_what_is_not(
    browser: Any, folder: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "analysis.html").as_uri())
    assert page.locator("noscript p").is_visible()
    assert not page.locator("#browser-body").is_visible()
    for figure in page.locator("figure svg").all():
        size = figure.bounding_box()
        assert min(size["width"], size["height"]) > 100
    context.close()

"""The analysis page runs its own script only, and its browser shows what the models compute."""

import base64
import csv
import hashlib
import html
import json
import math
import re
from dataclasses import replace
from itertools import chain, combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch

from capsnmt.analysis.analyse import Findings, analyse, table, write
from capsnmt.analysis.layers import Anisotropy
from capsnmt.analysis.plots import matrices, scatter
from capsnmt.analysis.sentences import with_few_columns
from capsnmt.pages.page import csv_text
from capsnmt.pages.plots import drawing
from tests.analysis.oracles import by_strongest
from tests.analysis.small_models import (
    SCOPE,
    of_each_sentence,
    precise,
    weights_of_each_sentence,
    write_checkpoint,
    write_data,
)
from tests.html_pages import Page, contrast, opened, without_images

PAGE = "analysis.html"
EVIL = "</script><img src=http:evil.example onerror=alert(1)>"
SUBWORDS = (EVIL, "<!--<script>", "$x$", "漢字", "&amp;", '"', "__proto__", "it's")
ROUTED = 'em <i>&"$1$'
NAMES = ("baseline", ROUTED, "capsule")
OTHER = "other subwords"
TWICE = ("--routing-iterations", "2")
MODELS = {
    "baseline": ("capsnmt_transformer",),
    ROUTED: ("transformer_em_routing", "--layer-aggregation", "em-routing", *TWICE),
    "capsule": ("capsule_transformer", *TWICE),
    OTHER: ("capsnmt_transformer",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three models with different routings, and of one that reads other sentences."""
    folder = tmp_path_factory.mktemp("hostile")
    data = write_data(folder / "data", symbols=SUBWORDS)
    other = write_data(folder / "other", seed=5, symbols=SUBWORDS)
    checkpoints = [
        replace(
            write_checkpoint(
                *(precise(*flags), folder / f"{place}.pt", other if name == OTHER else data),
                *(flags, name != OTHER),
            ),
            name=name,
        )
        for place, (name, flags) in enumerate(MODELS.items())
    ]
    scope = replace(SCOPE, browser_sentences=3)
    findings = analyse(checkpoints, scope, ["agreement", "sentences"])
    output = tmp_path_factory.mktemp("analysis")
    with without_images(b'<svg width="9" height="9" />'):
        assert write(findings, output, f"capsnmt-analyse {EVIL}") == output / PAGE
    return output


@pytest.fixture(scope="module")
def content(folder: Path) -> str:
    return (folder / PAGE).read_text("utf-8")


# One call for all choices: a step of the browser's driver takes longer than a map.
EXPLORE = """([part]) => {
    const root = document.getElementById(`browser-${part}`);
    const panes = [...root.querySelectorAll(".map")];
    const cellOf = (cell) => [cell.textContent, +cell.style.getPropertyValue("--share")];
    const shown = () => panes.map((pane) => pane.hidden ? null
        : [...pane.querySelectorAll("tbody tr")].map(
            (row) => [...row.querySelectorAll("td")].map(cellOf)));
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


def test_the_page_runs_only_its_own_script(content: str) -> None:
    page = Page(content)
    (policy,) = [str(each["content"]) for each in page.all("meta") if "http-equiv" in each]
    data, script = re.findall(r"<script[^>]*>(.*?)</script>", content, flags=re.DOTALL)
    assert [each.get("type") for each in page.all("script")] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert not re.search("innerHTML|outerHTML|insertAdjacent|document.write|eval", script)
    assert EVIL in json.dumps(json.loads(data))
    shown = html.unescape(re.sub(r"<[^>]*>", "", content))
    assert f"Analysis of {', '.join((*NAMES, OTHER))}" in shown
    assert f"capsnmt-analyse {EVIL}" in shown
    assert f"Not for baseline, {OTHER}: nothing is routed" in shown
    assert "browser" in {str(each["href"])[1:] for each in page.all("a")}


def test_folded_tables_have_the_numbers_of_the_csv(folder: Path, content: str) -> None:
    for name in ("agreement", "sentences"):
        (table,) = re.findall(rf"Numbers \({name}.csv\).*?<table>(.*?)</table>", content, re.DOTALL)
        shown = [
            [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        ]
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            assert shown == list(csv.reader(file))


def test_the_long_names_of_many_systems_stay_in_the_figure_and_apart() -> None:
    names = [f"chen2026_attention_residuals_block-{number}-seed-1" for number in range(9)]
    rows = [{"stack": x, "layer": n, "cosine": n} for x in ("encoder", "decoder") for n in (0, 1)]
    points = torch.eye(32, 2).numpy(), torch.arange(32).numpy() % 16
    with drawing():
        for figure in (
            Anisotropy.plots[0].figure(dict.fromkeys(names, rows)).draw(),
            matrices(dict.fromkeys(names, torch.eye(3)), ("CKA", "layer", "layer")),
            scatter(dict.fromkeys(names[:3], points), "head"),
        ):
            figure.draw_without_rendering()
            titles = [axes.title for axes in figure.axes if axes.get_title()]
            boxes = [each.get_window_extent() for each in (*titles, *figure.legends)]
            assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
            assert min(min(each.x0, each.y0) for each in boxes) >= 0
            assert max(each.x1 for each in boxes) <= figure.bbox.x1
            assert max(each.y1 for each in boxes) <= figure.bbox.y1
            heights = [axes.bbox.height for axes in figure.axes if axes.get_visible()]
            assert min(heights) > figure.dpi / 2


def test_a_number_that_is_none_leaves_its_cell_empty() -> None:
    rows: List[Any] = [(math.nan, 1), (None, 1.23456789)]
    analysis: Any = SimpleNamespace(columns=("x", "y"), rows=lambda: rows)
    assert csv_text(table(analysis, {"it": analysis})) == "system,x,y\nit,,1\nit,,1.234568\n"


def test_what_an_earlier_analysis_left_is_told(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("agreement.csv", "figures/distance.png", "figures/distance.svg", "own.csv"):
        (tmp_path / name).touch()
    write(Findings((), SCOPE), tmp_path, "capsnmt-analyse")
    assert "3 file(s)" in (error := capsys.readouterr().err)
    assert "are of an earlier analysis: agreement.csv, .." in error


def test_models_that_read_other_sentences_than_the_first_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    flags = MODELS["baseline"]
    for name, seed in (("one", 0), ("same", 0), ("other", 5), ("source", 0)):
        write_data(tmp_path / name, seed)
    for end in ("bin", "idx"):
        file = f"test.en-de.en.{end}"
        (tmp_path / "source" / file).write_bytes((tmp_path / "other" / file).read_bytes())
    made = [
        write_checkpoint(precise(*flags), tmp_path / f"{name}.pt", tmp_path / name, flags)
        for name in ("one", "same", "other", "source")
    ]
    halves = [str(number) for number in range(24)]
    halves[10] = "w@@"  # a subword that the corpus lacks
    data = write_data(tmp_path / "halves", symbols=halves, before=14)
    made.append(write_checkpoint(precise(*flags), tmp_path / "halves.pt", data, flags))
    analyse(made, SCOPE, ["anisotropy"])
    few = (*flags, "--max-source-positions", "6")  # the longest sentence has more
    short = write_checkpoint(precise(*few), tmp_path / "short.pt", tmp_path / "one", few)
    for pair in ((short, made[0]), (made[0], short)):
        analyse(pair, SCOPE, ["anisotropy"])
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("warning")]
    others = "5 of 5 sentences are others than those of one"
    assert [line.partition(";")[0] for line in lines] == [
        *(f"warning: {name}: {others}" for name in ("other", "source")),
        "warning: halves: 5 of 5 sentences are in other subwords than those of one",
        "warning: one: 1 of 5 sentences are others than those of short",
        "warning: short: 1 of 5 sentences are others than those of one",
    ]


@pytest.fixture(scope="module")
def sentences(folder: Path) -> Any:
    return json.loads((folder / "sentences.json").read_text("utf-8"))["sentences"]


def check(each: Dict[str, Any], expected: torch.Tensor, digits: float) -> None:
    """Compare a map with what a model computed; its axes name every number."""
    values = torch.tensor(each["values"], dtype=expected.dtype)
    torch.testing.assert_close(values, expected, rtol=0, atol=digits)
    axes = [*each["choices"], each["rows"], each["columns"]]
    assert [len(axis["labels"]) for axis in axes] == list(expected.shape)


@pytest.mark.parametrize("name", NAMES)
def test_the_maps_are_what_the_model_computes(sentences: Any, name: str) -> None:
    model = precise(*MODELS[name])
    found = [each["systems"][NAMES.index(name)] for each in sentences]
    for of_sentence, weights in zip(found, weights_of_each_sentence(model)):
        maps = {(each["place"], each["layer"]): each for each in of_sentence["attention"]}
        assert set(maps) == set(weights)
        for place, A in weights.items():
            check(maps[place], torch.cat([A.mean(0, keepdim=True), A]), 5.1e-4)
    for of_sentence, records in zip(found, of_each_sentence(model)):
        assert len(of_sentence["coefficients"]) == len(records)
        for each, record in zip(of_sentence["coefficients"], records):
            C = torch.stack(record.coefficients)
            if each["kind"] == "vertical":
                check(each, C[:, 0], 2e-5)
            elif each["kind"] == "horizontal":
                check(each, C[:, 0].permute(0, 3, 1, 2), 2e-5)
            else:
                mean = C[:, :, 0].mean(1)
                check(each, mean[..., by_strongest(mean[-1])], 2e-5)
            assert each["choices"][0]["chosen"] == len(C) - 1


def test_routing_over_layers_is_of_all_of_them(sentences: Any, content: str) -> None:
    """It was named after the top one."""
    found = sentences[0]["systems"][NAMES.index(ROUTED)]["coefficients"]
    for side in ("encoder", "decoder"):
        assert f"2 layers of the {side}" in {each["name"] for each in found}
        assert f", 2 layers of the {side}, over tokens, one panel per iteration." in content


@pytest.mark.parametrize(("capsules", "group"), [(64, 1), (65, 2), (512, 8)])
def test_many_output_capsules_become_few_columns_with_the_same_sum(
    capsules: int, group: int
) -> None:
    (found,), labels = with_few_columns([torch.rand(4, capsules).softmax(-1)])
    assert found.shape == (4, -(-capsules // group)) == (4, len(labels))
    assert labels[0] == ("1" if group == 1 else f"1-{group}")
    assert labels[-1].split("-")[-1] == str(capsules)
    widths = torch.full((found.size(-1),), group)
    widths[-1] = capsules - group * (found.size(-1) - 1)
    assert torch.allclose((found * widths).sum(-1), torch.ones(4))


def choose(page: Any, **labels: str) -> None:
    for name, label in labels.items():
        page.select_option(f"#browser-body select[name={name}]", label=label)


def leaves(values: Any) -> List[float]:
    return [x for each in values for x in leaves(each)] if isinstance(values, list) else [values]


@pytest.mark.system
@pytest.mark.parametrize("part", ["attention", "coefficients"])
def test_each_choice_shows_its_numbers(
    browser: Any, folder: Path, sentences: Any, part: str
) -> None:
    with opened(browser, folder / PAGE) as page:
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
            unit = 1 if highest >= 0.1 else 0.1  # percent
            for place in product(*(range(len(axis["labels"])) for axis in each["choices"])):
                values = each["values"]
                for index in place:
                    values = values[index]
                labels = (axis["labels"][index] for axis, index in zip(each["choices"], place))
                cells = found[(each["name"], *labels)][side]
                assert [len(line) for line in cells] == [len(line) for line in values]
                for (text, share), value in zip(chain(*cells), leaves(values)):
                    assert float(text or 0) == pytest.approx(100 * value, abs=0.501 * unit)
                    assert share == pytest.approx(value / highest, abs=6e-4)
                shown += 1
    assert shown == sum(side is not None for panes in found.values() for side in panes)


@pytest.mark.system
def test_two_systems_share_the_cursor_from_the_keyboard_and_the_mouse(
    browser: Any, folder: Path, sentences: Any
) -> None:
    maps = [sentences[0]["systems"][side]["attention"][0] for side in (0, 1)]
    with opened(browser, folder / PAGE) as page:
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


@pytest.mark.system
def test_systems_with_other_subwords_each_show_their_own(
    browser: Any, folder: Path, sentences: Any
) -> None:
    with opened(browser, folder / PAGE) as page:
        choose(page, left=NAMES[0], right=OTHER)
        shown = page.locator("#browser-texts").inner_text()
        for side, system in enumerate((0, 3)):
            one = sentences[0]["systems"][system]
            assert f"source: {' '.join(one['source'])}" in shown
            assert f"reference: {' '.join(one['target'])}" in shown
            cells = page.locator("#browser-loss .map").nth(side).locator("td").all_inner_texts()
            losses = one["loss"][0]["values"][0]
            assert [float(text) for text in cells] == pytest.approx(losses, abs=0.051)


@pytest.mark.system
@pytest.mark.parametrize("width", [320, 1280])
def test_the_page_is_readable(browser: Any, folder: Path, width: int) -> None:
    with opened(browser, folder / PAGE, width) as page:
        page.focus("#browser-attention .map >> nth=0")
        # what is wider than the screen scrolls by itself
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            inks = page.evaluate(
                "[...document.querySelectorAll('.map th, .readout, select, label, .figure + em')]"
                ".map(each => getComputedStyle(each).color)"
            )
            assert min(contrast(ink, paper) for ink in set(inks)) > 4.5
            # the number in the darkest cell
            tint, ink = page.evaluate(
                "[`rgb(${getComputedStyle(document.documentElement).getPropertyValue('--tint')})`,"
                "getComputedStyle(document.querySelector('.map td')).color]"
            )
            assert contrast(ink, tint) > 4.5


@pytest.mark.system
def test_without_javascript_the_page_says_what_is_not_there(browser: Any, folder: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / PAGE).as_uri())
    assert page.locator("noscript p").is_visible()
    assert not page.locator("#browser-body").is_visible()
    assert page.locator(".figure svg").first.is_visible()
    context.close()

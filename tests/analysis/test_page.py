"""The analysis page is one file that loads nothing, and has the numbers of the CSV files."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import torch

from capsnmt.analysis.ablation import HeadAblation
from capsnmt.analysis.analyse import Findings
from capsnmt.analysis.page import csv_text, table, write
from capsnmt.analysis.sentences import with_few_columns
from tests.analysis.conftest import EVIL, MODELS, NAMES, OTHER
from tests.analysis.small_models import (
    couplings_of_each_sentence,
    precise,
    weights_of_each_sentence,
)
from tests.analysis.test_analyses import by_strongest
from tests.html_pages import Page


def test_the_page_loads_nothing_and_runs_only_its_own_script(content: str) -> None:
    page = Page(content)
    assert page.all("img") == page.all("iframe") == page.all("object") == []
    (policy,) = [str(each["content"]) for each in page.all("meta") if "http-equiv" in each]
    _, script = re.findall(r"<script[^>]*>(.*?)</script>", content, flags=re.DOTALL)
    assert [each.get("type") for each in page.all("script")] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")
    assert not re.search("innerHTML|outerHTML|insertAdjacent|document.write|eval", script)
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert str(value).startswith(("#", "data:"))


def test_every_text_is_shown_as_it_is(content: str) -> None:
    text = re.sub(r"<script.*?</script>", "", content, flags=re.DOTALL)
    shown = html.unescape(re.sub(r"<[^>]*>", "", text))
    assert f"Analysis of {', '.join((*NAMES, OTHER))}" in shown
    assert f"capsnmt-analyse {EVIL}" in shown
    assert f"Not for baseline, {OTHER}: it routes nothing " in shown


def test_the_page_works_with_a_screen_reader(content: str) -> None:
    page = Page(content)
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    pictures = [each for each in page.all("span") if each.get("role") == "img"]
    assert len(pictures) == len(page.all("svg"))
    assert len(pictures) > 4
    assert all(len(str(each["aria-label"])) > 20 for each in pictures)
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in zip(headings, headings[1:]))
    identifiers = [str(each["id"]) for _, each in page.elements if "id" in each]
    assert len(identifiers) == len(set(identifiers))
    wanted = {str(each["href"])[1:] for each in page.all("a")}
    assert wanted <= set(identifiers)
    assert "browser" in wanted


def test_folded_tables_have_the_numbers_of_the_csv(folder: Path, content: str) -> None:
    for name in ("agreement", "sentences"):
        (table,) = re.findall(rf"Numbers \({name}.csv\).*?<table>(.*?)</table>", content, re.DOTALL)
        shown = [
            [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        ]
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            assert shown == list(csv.reader(file))


def test_captions_say_on_how_many_sentences_the_numbers_are(folder: Path) -> None:
    text = (folder / "analysis.md").read_text("utf-8")
    captions = [line for line in text.splitlines() if line.startswith("*")]
    assert {"Sentences: 5.*" in line for line in captions if "mean C" in line} == {True}


def test_a_figure_of_losses_says_how_sure_they_are() -> None:
    row = dict(zip(HeadAblation.columns, ("enc-self", 1, 1, 2.0, 0.1, 0.034)))
    figure = HeadAblation.plots[0].figure({"it": [row, {**row, "standard_error": 0.01}]})
    assert figure.caption.startswith("Increase of the loss when one head is set to zero. ")
    assert figure.caption.endswith(" The highest standard error is 0.034.")


def test_a_number_that_is_none_leaves_its_cell_empty() -> None:
    rows: List[Any] = [(math.nan, 1), (None, 1.23456789)]
    analysis: Any = SimpleNamespace(columns=("x", "y"), rows=lambda: rows)
    assert csv_text(table(analysis, {"it": analysis})) == "system,x,y\nit,,1\nit,,1.234568\n"


def test_the_page_of_one_analysis_replaces_what_an_earlier_one_wrote(
    findings: Findings, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "analysis"
    shutil.copytree(folder, output)
    (output / "notes.csv").touch()
    agreement = {
        name: found for name, found in findings.of["agreement"].items() if name != NAMES[1]
    }
    write(replace(findings, of={"agreement": agreement}, missing={}), output, "")
    left = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert left == {"analysis.html", "analysis.md", "agreement.csv", "notes.csv"}
    content = (output / "analysis.html").read_text("utf-8")
    assert Page(content).all("script") == Page(content).all("select") == []
    assert "script-src" not in content


def maps(folder: Path, key: str, model: int) -> List[List[Dict[str, Any]]]:
    """Return the maps of each sentence of a model in sentences.json."""
    text = (folder / "sentences.json").read_text("utf-8")
    return [each["systems"][model][key] for each in json.loads(text)["sentences"]]


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_those_that_the_attentions_return(folder: Path, name: str) -> None:
    model = precise(*MODELS[name])
    found = maps(folder, "attention", NAMES.index(name))
    for of_sentence, weights in zip(found, weights_of_each_sentence(model)):
        assert {(each["place"], each["layer"]) for each in of_sentence} == set(weights)
        for each in of_sentence:
            A = weights[each["place"], each["layer"]]
            (heads,) = each["choices"]
            assert heads["labels"] == ["mean of heads", "1", "2", "3", "4"]
            expected = torch.cat([A.mean(0, keepdim=True), A])
            values = torch.tensor(each["values"], dtype=A.dtype)
            torch.testing.assert_close(values, expected, rtol=0, atol=5.1e-4)
            axes = [len(each[axis]["labels"]) for axis in ("rows", "columns")]
            assert axes == list(A.shape[1:])


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_coefficients_are_the_recorded_ones(folder: Path, name: str) -> None:
    model = precise(*MODELS[name])
    found = maps(folder, "coefficients", NAMES.index(name))
    for of_sentence, records in zip(found, couplings_of_each_sentence(model)):
        assert len(of_sentence) == len(records)
        for each, record in zip(of_sentence, records):
            C = torch.stack(record.coefficients)
            if each["kind"] == "vertical":
                expected = C[:, 0]
            elif each["kind"] == "horizontal":
                expected = C[:, 0].permute(0, 3, 1, 2)
            else:
                C = C[:, :, 0]
                mean = C.mean(1, keepdim=True)
                expected = torch.cat([mean, C], 1)[..., by_strongest(mean[-1, 0])]
            values = torch.tensor(each["values"], dtype=C.dtype)
            torch.testing.assert_close(values, expected, rtol=0, atol=2e-5)
            sizes = [len(axis["labels"]) for axis in each["choices"]]
            sizes += [len(each[axis]["labels"]) for axis in ("rows", "columns")]
            assert sizes == list(expected.shape)
            assert each["choices"][0]["chosen"] == len(C) - 1


@pytest.mark.parametrize(("capsules", "group"), [(64, 1), (65, 2), (130, 3), (512, 8)])
def test_many_output_capsules_become_few_columns_with_the_same_mean(
    capsules: int, group: int
) -> None:
    C = torch.rand(5, 4, capsules).softmax(-1)
    (found,), labels = with_few_columns([C])
    assert found.shape == (6, 4, -(-capsules // group)) == (6, 4, len(labels))
    assert (labels[0], labels[-1].split("-")[-1]) == (
        "1" if group == 1 else f"1-{group}",
        str(capsules),
    )
    widths = torch.full((found.size(-1),), group)
    widths[-1] = capsules - group * (found.size(-1) - 1)
    assert torch.allclose((found * widths).sum(-1), torch.ones(6, 4))  # each row still adds up
    assert torch.allclose(found[0], found[1:].mean(0))

"""The analysis page is one file that loads nothing, and has the numbers of the CSV files."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path

from capsnmt.analysis.analyse import Findings
from capsnmt.analysis.output import write
from capsnmt.analysis.page import render
from tests.analysis.conftest import EVIL, NAMES, OTHER
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
    assert "Not for baseline: it routes nothing " in shown


def test_the_page_works_with_a_screen_reader(content: str) -> None:
    page = Page(content)
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    pictures = [each for each in page.all("div") if each.get("role") == "img"]
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
        (table,) = re.findall(rf"<caption>{name}.csv</caption>(.*?)</table>", content, re.DOTALL)
        shown = [
            [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", table)
        ]
        with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
            assert shown == list(csv.reader(file))
    assert "<code>maps.csv, couplings.csv</code>" in content


def test_an_analysis_without_sentences_has_no_script(findings: Findings) -> None:
    one = replace(findings, of={"agreement": findings.of["agreement"]})
    content = render(one, {}, {}, {})
    page = Page(content)
    assert page.all("script") == page.all("select") == []
    assert "script-src" not in content
    assert "Agreement of routing" in content


def test_a_second_analysis_into_the_folder_removes_the_files_of_the_first_one_only(
    findings: Findings, tmp_path: Path
) -> None:
    """The list of the first one's files may be damaged, and cannot reach out of the folder."""
    output = tmp_path / "analysis"
    first = set(write(findings, output))
    outside = [tmp_path / "outside.csv", output / "notes.csv", output / "figures" / "mine.png"]
    for path in outside:
        path.touch()
    one = replace(findings, of={"agreement": findings.of["agreement"]})
    second = set(write(one, output))
    assert output / "sentences.csv" in first - second
    listed = ["../outside.csv", str(outside[0]), "figures/../../outside.csv", "figures", "", 3]
    for text in (json.dumps([*listed, "absent.csv"]), "{", '{"a": 1}'):
        (output / "figures" / "files.json").write_text(text, "utf-8")
        assert set(write(one, output)) == second
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == {*second, *outside}

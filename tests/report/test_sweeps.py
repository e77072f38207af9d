"""Sweeps in a report: the curves that the runs' descriptions name, with every seed."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any, Dict, List
from xml.etree import ElementTree

import pytest

from capsnmt.report import __main__ as report
from tests.report.finished_runs import edit, page, rows_of

FLAG = "layer-capsules"


def add_point(output: Path, value: Any, seed: int, bleu: float, row: str = "em_routing") -> Path:
    """A finished run of a sweep, made of the unswept one."""
    name = f"{row}_{FLAG}-{value}"
    folder = output / name / f"seed-{seed}"
    shutil.copytree(output / "em_routing" / "seed-1", folder)

    def sweep(config: Dict[str, Any]) -> None:
        config.update(row=name, seed=seed, sweep={"row": row, "flag": FLAG, "value": value})
        config["settings"]["train"][FLAG] = value

    def score(scores: Dict[str, Any]) -> None:
        system = scores["test"]["systems"][-1]
        system["name"] = name
        system["outputs"][0]["scores"]["bleu"]["score"] = bleu

    edit(folder / "config.json", sweep)
    edit(folder / "scores.json", score)
    return folder


@pytest.fixture
def swept(output: Path) -> Path:
    """Three values with two seeds, and the baseline."""
    for value in (64, 8, 512):
        for seed in (1, 2):
            add_point(output, value, seed, 20.0 + value / 100 + seed)
    shutil.rmtree(output / "em_routing")
    return output


def sweep_of(*folders: Path) -> List[List[str]]:
    """The table of the sweep."""
    return rows_of(page(folders).partition("## Sweeps")[2], "system")


def test_values_are_in_rising_order_with_their_seeds_and_the_baseline(swept: Path) -> None:
    header, baseline, row = sweep_of(swept)
    assert header == ["system", "8", "64", "512"]
    assert (baseline[0], len(set(baseline[1:]))) == ("baseline", 1)
    assert row == ["em\\_routing", "21.58 ± 0.71", "22.14 ± 0.71", "26.62 ± 0.71"]


def test_the_command_writes_figure_and_numbers_beside_the_page(swept: Path) -> None:
    folder = swept / "report"
    assert report.main([str(swept), "--output", str(folder), "--samples", "0"]) == 0
    assert f"(sweep-{FLAG}-test.png)" in (folder / "report.md").read_text("utf-8")
    assert (folder / f"sweep-{FLAG}-test.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(folder / f"sweep-{FLAG}-test.svg")
    assert f"sweep-{FLAG}-test" in (folder / "report.html").read_text("utf-8")
    with (folder / "scores.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["metric"] == "bleu"]
    assert (lines[0]["row"], lines[0]["value"]) == ("baseline", "")
    numbers = [(line["value"], line["seed"], line["score"]) for line in lines[1:]]
    assert numbers[:3] == [("512", "1", "26.12"), ("512", "2", "27.12"), ("64", "1", "21.64")]


def test_a_report_without_a_sweep_has_no_section(output: Path) -> None:
    folder = output / "report"
    assert report.main([str(output), "--output", str(folder), "--samples", "0"]) == 0
    assert "Sweeps" not in (folder / "report.md").read_text("utf-8")
    assert not list(folder.glob("sweep-*"))


def test_rows_are_curves_and_a_row_in_two_outputs_is_two(swept: Path, tmp_path: Path) -> None:
    again = shutil.copytree(swept, tmp_path / "again")
    names = [row[0].replace("\\_", "_") for row in sweep_of(swept, again)]
    assert names[-2:] == [f"em_routing ({swept})", f"em_routing ({again})"]


def test_a_baseline_that_was_not_tested_against_is_the_first_row(swept: Path) -> None:
    for path in swept.glob("em_routing_*/seed-*/config.json"):
        edit(path, lambda config: config.update(baseline=None))
    rows = sorted(swept.glob("em_routing_*"))
    assert [row[0] for row in sweep_of(swept / "baseline", *rows)][1:] == [
        "baseline",
        "em\\_routing",
    ]
    assert [row[0] for row in sweep_of(*rows)][1:] == ["em\\_routing"]

"""Sweeps in a report: the curves that the runs' descriptions name, with every seed."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any, Dict, List
from xml.etree import ElementTree

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.seeds import Spread
from capsnmt.report import __main__ as report
from capsnmt.report.figures import bleu_by_value, drawing, image, svg
from capsnmt.runs.find import find_runs
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import Description
from capsnmt.runs.sweeps import FinishedSweep, find_sweeps
from capsnmt.runs.translation import load_translation

FLAG = "layer-capsules"


def add_point(output: Path, value: Any, seed: int, bleu: float, row: str = "em_routing") -> Path:
    """A finished run of a sweep, made of the unswept one."""
    name = f"{row}_{FLAG}-{value}"
    folder = output / name / f"seed-{seed}"
    shutil.copytree(output / "em_routing" / "seed-1", folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.update(row=name, seed=seed, sweep={"row": row, "flag": FLAG, "value": value})
    config["settings"]["train"][FLAG] = value
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    scores = json.loads((folder / "scores.json").read_text("utf-8"))
    system = scores["test"]["systems"][-1]
    system["name"], system["bleu"]["score"] = name, bleu
    (folder / "scores.json").write_text(json.dumps(scores), "utf-8")
    return folder


@pytest.fixture
def swept(output: Path) -> Path:
    """Three values with two seeds, and the baseline."""
    for value in (64, 8, 512):
        for seed in (1, 2):
            add_point(output, value, seed, 20.0 + value / 100 + seed)
    shutil.rmtree(output / "em_routing")
    return output


def sweeps_of(*folders: Path) -> List[FinishedSweep]:
    return find_sweeps([load_translation(run) for run in find_runs(folders).finished])


def test_values_are_in_rising_order_with_their_seeds_and_the_baseline(swept: Path) -> None:
    (sweep,) = sweeps_of(swept)
    assert (sweep.flag, list(sweep.labels)) == (FLAG, ["8", "64", "512"])
    (curve,) = sweep.curves
    assert curve.name == "em_routing"
    means = {label: system.score("test").mean for label, system in curve.systems.items()}
    assert means == pytest.approx({"8": 21.58, "64": 22.14, "512": 26.62})
    assert [system.name for system in sweep.baselines] == ["baseline"]


def test_the_command_writes_figure_and_numbers_beside_the_page(swept: Path) -> None:
    folder = swept / "report"
    assert report.main([str(swept), "--output", str(folder), "--samples", "0"]) == 0
    page = (folder / "report.md").read_text("utf-8")
    assert f"(sweep-{FLAG}-test.png)" in page
    assert "| em\\_routing | 21.58 ± 0.71 | 22.14 ± 0.71 | 26.62 ± 0.71 |" in page
    assert (folder / f"sweep-{FLAG}-test.png").read_bytes().startswith(b"\x89PNG")
    ElementTree.parse(folder / f"sweep-{FLAG}-test.svg")
    assert f"sweep-{FLAG}-test" in (folder / "report.html").read_text("utf-8")
    with (folder / f"sweep-{FLAG}.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert lines[0] == {
        "system": "baseline", "test_set": "test", "value": "", "seed": "1",
        "bleu": lines[0]["bleu"], "tokens_per_second": "56.9", "parameters": "6",
    }  # fmt: skip
    numbers = [(line["value"], line["seed"], line["bleu"]) for line in lines[1:]]
    assert numbers[:3] == [("8", "1", "21.0800"), ("8", "2", "22.0800"), ("64", "1", "21.6400")]


def test_a_report_without_a_sweep_has_no_section(output: Path) -> None:
    folder = output / "report"
    assert report.main([str(output), "--output", str(folder), "--samples", "0"]) == 0
    assert "Sweeps" not in (folder / "report.md").read_text("utf-8")
    assert not list(folder.glob("sweep-*"))


def test_rows_are_curves_and_a_row_in_two_outputs_is_two(swept: Path, tmp_path: Path) -> None:
    shutil.copytree(swept, tmp_path / "again")
    (sweep,) = sweeps_of(swept, tmp_path / "again")
    assert [curve.name for curve in sweep.curves] == [
        f"em_routing ({swept})",
        f"em_routing ({tmp_path / 'again'})",
    ]
    assert all(len(curve.systems) == 3 for curve in sweep.curves)


def test_a_baseline_that_was_not_tested_against_is_the_first_row(swept: Path) -> None:
    for path in swept.glob("em_routing_*/seed-*/config.json"):
        config = {**json.loads(path.read_text("utf-8")), "baseline": None}
        path.write_text(json.dumps(config), "utf-8")
    (sweep,) = sweeps_of(swept / "baseline", *sorted(swept.glob("em_routing_*")))
    assert [system.name for system in sweep.baselines] == ["baseline"]
    (sweep,) = sweeps_of(*sorted(swept.glob("em_routing_*")))
    assert sweep.baselines == []


@pytest.mark.parametrize(
    "damage",
    [{"sweep": 1}, {"sweep": {"row": "a"}}, {"sweep": {"row": "a", "flag": "b", "value": [1]}},
     {"sweep": {"row": "a", "flag": "../b", "value": 1}}],
)  # fmt: skip
def test_a_damaged_description_of_a_sweep_is_one_line(damage: Dict[str, Any]) -> None:
    value = {"row": "a_b-1", "seed": 1, **damage}
    with pytest.raises(ConfigurationError) as error:
        Description.from_json(value, "config.json")
    assert str(error.value).startswith("config.json: ")


def test_a_description_keeps_its_point_and_older_ones_have_none(output: Path) -> None:
    folder = RunFolder(add_point(output, 8, 1, 20.0))
    description = folder.read_description()
    folder.write_description(description)
    assert folder.read_description() == description
    assert RunFolder(output / "baseline" / "seed-1").read_description().sweep is None


def test_the_figure_has_every_value_seed_and_baseline() -> None:
    curve = {"1": Spread(20.0, 1.0, [19.0, 21.0]), "512": Spread(25.0, None, [25.0])}
    with drawing():
        figure = bleu_by_value(
            "--layer-capsules",
            ["1", "8", "512"],
            {"one": curve, "other": {"8": Spread(22.0, None, [22.0])}},
            {"baseline": Spread(18.0, 0.5, [17.5, 18.5])},
        )
        picture = svg(image(figure, "svg"), "x")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "8", "512"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *("baseline", "one", "other")
    ]
    (low, high), *_ = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "None"
                       and len(line.get_ydata()) == 2 and line.get_marker() == "."]  # fmt: skip
    assert (low, high) == (19.0, 21.0)
    assert "--layer-capsules" in picture

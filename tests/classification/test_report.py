"""The papers' table and figure show the numbers of the runs, averaged over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from capsnmt.classification import report
from capsnmt.errors import ConfigurationError
from capsnmt.files import write_json


def measures(accuracy: float, **buckets: float) -> Dict[str, Any]:
    return {
        "examples": 100,
        "accuracy": accuracy,
        "macro_f1": accuracy / 2,
        "majority": 53.0,
        "by_bucket": {
            name[1:]: {"examples": 10, "accuracy": value} for name, value in buckets.items()
        },
    }


def save(folder: Path, row: str, seed: int, found: Dict[str, Any], task: str = "") -> None:
    run = folder / row / task / f"seed-{seed}"
    write_json(run / "config.json", {"row": row, "seed": seed})
    results = {
        "task": "probing" if task else "logical_inference",
        "probing_task": task or None,
        "updates": 7,
        "parameters": 9,
        "splits": {"test": found},
    }
    write_json(run / "results.json", results)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, accuracy in ((1, 60.0), (2, 70.0)):
        save(tmp_path, "baseline", seed, measures(accuracy, b0=99, b1=accuracy, b12=50))
        save(tmp_path, "both", seed, measures(accuracy + 5, b0=99, b1=80, b12=accuracy - 20))
        save(tmp_path, "both", seed, measures(90), "WC")
        save(tmp_path, "baseline", seed, measures(80 + seed), "WC")
        save(tmp_path, "baseline", seed, measures(40), "SentLen")
    return tmp_path


def test_probing_is_a_row_a_task_by_kind_with_the_papers_systems_in_order(folder: Path) -> None:
    list(report.write_report([folder], folder / "report"))
    text = (folder / "report" / "probing.md").read_text("utf-8")
    lines = text.splitlines()
    assert lines[0] == "|  | task | majority | baseline | both |"
    assert "| Surface | SeLen | 53.00 | 40.00 ± 0.00 |  |" in lines
    assert "| Surface | WC | 53.00 | 81.50 ± 0.71 | 90.00 ± 0.00 |" in lines
    # an average that lacks a task would not compare
    assert "| Surface | Ave. |  | 60.75 |  |" in lines
    assert "of seeds 1, 2; mean ± standard deviation" in text


def test_logical_inference_is_a_row_a_number_of_operators_and_a_figure(folder: Path) -> None:
    files = list(report.write_report([folder], folder / "report"))
    text = (folder / "report" / "logical_inference.md").read_text("utf-8")
    lines = text.splitlines()
    assert "| 1 | 10 | 65.00 ± 7.07 | 80.00 ± 0.00 |" in lines
    assert "| 12 | 10 | 50.00 ± 0.00 | 45.00 ± 7.07 |" in lines
    assert not [line for line in lines if line.startswith("| 0 |")]
    assert "| accuracy | 100 | 65.00 ± 7.07 | 70.00 ± 7.07 |" in lines
    assert "Majority class: 53.00" in text
    (figure,) = [path for path in files if path.suffix == ".png"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert not list(figure.parent.glob("*.part"))


def test_the_same_runs_give_the_same_figure_and_others_another(folder: Path) -> None:
    pictures = []
    for accuracy in (70.0, 70.0, 71.0):
        save(folder, "baseline", 2, measures(accuracy, b0=99, b1=accuracy, b12=50))
        list(report.write_report([folder], folder / "report"))
        pictures.append((folder / "report" / "logical_inference.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_a_folder_without_finished_runs_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no results\.json of a finished run"):
        list(report.write_report([tmp_path], tmp_path / "report"))
    write_json(tmp_path / "config.json", {})
    write_json(tmp_path / "results.json", {})
    with pytest.raises(ConfigurationError, match=r"results\.json: 'row' is missing"):
        list(report.write_report([tmp_path], tmp_path / "report"))
    assert not (tmp_path / "report").exists()

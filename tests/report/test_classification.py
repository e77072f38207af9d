"""The papers' table and figure show the numbers of the runs, averaged over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

from capsnmt import records
from capsnmt.report import __main__ as report
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import RunConfig
from tests.report.finished_runs import write_records


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
    run = RunFolder(folder / row / task / f"seed-{seed}")
    kind = "probing" if task else "logical_inference"
    settings = {"train": {"task": kind}}
    write_records(run, RunConfig(row=row, seed=seed, settings=settings, data="data"))
    results = {
        "task": kind,
        "probing_task": task or None,
        "updates": 7,
        "parameters": 9,
        "splits": {"test": found},
    }
    records.write(run.result, results)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, accuracy in ((1, 60.0), (2, 70.0)):
        save(tmp_path, "baseline", seed, measures(accuracy, b0=99, b1=accuracy, b12=50))
        save(tmp_path, "both", seed, measures(accuracy + 5, b0=99, b1=80, b12=accuracy - 20))
        save(tmp_path, "both", seed, measures(90), "WC")
        save(tmp_path, "baseline", seed, measures(80 + seed), "WC")
        save(tmp_path, "baseline", seed, measures(40), "SentLen")
    return tmp_path


def page(folder: Path) -> str:
    """The Markdown of the report over the folder, which also has the HTML."""
    output = folder / "report"
    assert report.main([str(folder), "--output", str(output)]) == 0
    assert not list(output.glob("*.part"))
    assert "<table" in (output / "report.html").read_text("utf-8")
    return (output / "report.md").read_text("utf-8")


def test_probing_is_a_row_a_task_by_kind_with_the_papers_systems_in_order(folder: Path) -> None:
    text = page(folder)
    lines = text.splitlines()
    assert "| kind | task | majority | baseline | both |" in lines
    assert "| Surface | SeLen | 53.00 | 40.00 ± 0.00 | – |" in lines
    assert "| Surface | WC | 53.00 | 81.50 ± 0.71 | 90.00 ± 0.00 |" in lines
    # an average that lacks a task would not compare
    assert "| Surface | Ave. |  | 60.75 | – |" in lines
    assert "Accuracy in percent; seeds 1, 2. ± is the standard deviation (n - 1)" in text


def test_logical_inference_is_a_row_a_number_of_operators_and_a_figure(folder: Path) -> None:
    text = page(folder)
    lines = text.splitlines()
    assert "| 1 | 10 | 65.00 ± 7.07 | 80.00 ± 0.00 |" in lines
    assert "| 12 | 10 | 50.00 ± 0.00 | 45.00 ± 7.07 |" in lines
    assert not [line for line in lines if line.startswith("| 0 |")]
    assert "| accuracy | 100 | 65.00 ± 7.07 | 70.00 ± 7.07 |" in lines
    assert "Majority class: 53.00" in text
    assert (folder / "report" / "logical_inference.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_runs_give_the_same_figure_and_others_another(folder: Path) -> None:
    pictures = []
    for accuracy in (70.0, 70.0, 71.0):
        save(folder, "baseline", 2, measures(accuracy, b0=99, b1=accuracy, b12=50))
        page(folder)
        pictures.append((folder / "report" / "logical_inference.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]


def test_translation_and_classifiers_are_on_one_page(
    folder: Path, output: Path, tmp_path: Path
) -> None:
    both = [str(output / "baseline"), str(folder / "both"), "--output", str(tmp_path / "page")]
    assert report.main(both) == 0
    text = (tmp_path / "page" / "report.md").read_text("utf-8")
    assert "## Probing" in text
    assert "## Results" in text


def test_a_damaged_result_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save(tmp_path, "both", 1, {"examples": 100})
    assert report.main([str(tmp_path), "--output", str(tmp_path / "report")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "results.json: splits.test: the key accuracy is missing" in line
    assert not (tmp_path / "report").exists()

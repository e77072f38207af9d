"""A number of a run is computed once, recorded, and read by whatever shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import List

import pytest

from capsnmt.report.__main__ import main as report
from tests.faults.launched import launched
from tests.interpreter import ran
from tests.report import finished_runs

# the command lines of both hosts are the same code; at night both run them
pytestmark = pytest.mark.one_host

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from capsnmt.report.__main__ import main
sys.exit(main())
"""


@pytest.mark.system
def test_a_report_of_a_folder_of_any_bytes_needs_neither_torch_nor_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    runs = tmp_path / os.fsdecode(b"runs-\xff")
    shutil.copytree(launched(tmp_path_factory) / "runs", runs)
    for checkpoint in runs.rglob("*.pt"):
        checkpoint.unlink()
    done = ran([sys.executable, "-c", WITHOUT_TORCH, runs, "--output", tmp_path / "report"])
    assert done.returncode == 0, done.stderr
    log = (runs / "row" / "seed-1" / "console.log").read_text("utf-8")
    (logged,) = set(re.findall(r"num\. shared model params: ([\d,]+)", log))
    assert f"| {logged} |" in (tmp_path / "report" / "report.md").read_text("utf-8")


def rows_by_length(output: Path) -> List[List[str]]:
    """Report on both runs; return the cells of the table of BLEU by source length, if any."""
    runs = finished_runs.runs(output)
    assert report([*runs, "--output", str(output / "report")]) == 0
    page = (output / "report" / "report.md").read_text("utf-8")
    section = page[page.index("## Length of the source") :].split("\n## ")[0]
    lines = [line.replace("\\", "") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


@pytest.mark.parametrize("segmented", [False, True])
def test_bleu_by_length_is_that_of_the_scores(
    segmented: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with other subwords have other lengths: no table compares them."""
    finished_runs.write_run(tmp_path, "baseline")
    if segmented:
        longer = [f"{line} @@ @@ @@ @@ @@ @@ @@" for line in finished_runs.SOURCES]
        monkeypatch.setattr(finished_runs, "SOURCES", longer)
    finished_runs.write_run(tmp_path, "em_routing")
    rows = {cells[0]: cells[1:] for cells in rows_by_length(tmp_path)}
    if segmented:
        assert not rows
    else:
        for folder in finished_runs.runs(tmp_path):
            scores = json.loads((Path(folder) / "scores.json").read_text("utf-8"))["test"]
            (system,) = scores["systems"]
            found = system["outputs"][0]["bleu_by_length"].values()
            assert rows[system["name"]] == [f"{bleu:.2f}" for bleu in found]

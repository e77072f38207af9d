"""A launch loses no work: whatever surrounds it, stops it or repeats it, and however it is set."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.commands import command, environment, succeed
from tests.faults import launched
from tests.kills.launch import LAUNCHER
from tests.launch.test_slurm import Cluster
from tests.support import PLUGIN

# the command lines of both hosts are the same code; at night both run them
pytestmark = pytest.mark.one_host

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory, prepared: Path) -> List[str]:
    """The flags of a row that trains in a second; they lack ``--output``."""
    return list(map(str, launched.arguments(prepared, tmp_path_factory.mktemp("row"))))[:-2]


def run_in(
    surroundings: dict, module: str, *arguments: object, python: object = sys.executable
) -> subprocess.CompletedProcess:
    """Run a command in a new interpreter with other variables; what it prints may be any bytes."""
    return subprocess.run(
        [str(python), "-m", module, *map(str, arguments)],
        env={**environment(), **surroundings},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )


def assert_refused(done: subprocess.CompletedProcess, *parts: str) -> None:
    """Check that a command ended with status 2 and one line that has the parts."""
    assert done.returncode == 2, (done.stdout, done.stderr[-2000:])
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr


# --- what surrounds it


@pytest.mark.system
@pytest.mark.nightly  # an interpreter for each of its stages
def test_a_launch_without_utf8_and_without_asserts_ends_with_its_scores(
    row: List[str], tmp_path: Path
):
    surroundings = {**ASCII, "PYTHONOPTIMIZE": "1"}
    done = run_in(surroundings, LAUNCHER, *row, *launched.BY_EPOCHS, "--output", tmp_path)
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    folder = tmp_path / "row"
    scores = json.loads((folder / "seed-1" / "scores.json").read_text("utf-8"))
    assert list(scores) == ["news"]
    assert json.loads((folder / "summary.json").read_text("utf-8"))["seeds"] == [1]


@pytest.mark.system
def test_another_interpreter_and_another_checkout_repeat_nothing(
    prepared: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    python = tmp_path / "venv" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    checkout = tmp_path / "checkout"
    project = Path(PLUGIN).parent
    for name in ("capsnmt", "configs", "data_prep"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(project / name, checkout / name, ignore=ignored)
    libraries = os.pathsep.join(path for path in sys.path if "site-packages" in path)
    elsewhere = {"PYTHONPATH": f"{checkout}{os.pathsep}{libraries}"}
    # a setting that changes no update, and so does not start a finished training again
    logged = [*launched.BY_EPOCHS, "--set", "train.log-interval=1"]
    line = launched.arguments(prepared, launched.launched(tmp_path_factory))
    done = run_in(elsewhere, LAUNCHER, *line, *logged, python=python)
    assert done.returncode == 0, done.stderr[-3000:]
    stages = [line for line in done.stdout.splitlines() if line.startswith("-- ")]
    assert len(stages) == 4
    assert [line for line in stages if ": complete" not in line] == []


def test_the_evaluation_prints_its_table_on_a_terminal_without_utf8(tmp_path: Path):
    (tmp_path / "hypotheses").write_text("das Haus ist schön\n", "utf-8")
    done = run_in(
        ASCII,
        "capsnmt.evaluation",
        f"a={tmp_path / 'hypotheses'}",
        *("--reference", tmp_path / "hypotheses", "--input", "plain"),
    )
    assert done.returncode == 0, done.stderr
    assert "BLEU" in done.stdout


def test_a_folder_whose_records_are_lost_is_not_continued(
    row: List[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    """Without what says what they are, nobody knows whether its checkpoints may be."""
    runs = shutil.copytree(launched.launched(tmp_path_factory) / "runs", tmp_path / "runs")
    (runs / "row" / "seed-1" / "config.json").unlink()
    assert_refused(command(LAUNCHER, *row, "--output", runs), "config.json: cannot be read")


# --- SLURM


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A SLURM of stand-ins."""
    made = Cluster(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    return made


def test_a_job_is_not_submitted_twice_if_squeue_cannot_answer(
    cluster: Cluster, row: List[str], tmp_path: Path
):
    submission = [*row, "--slurm", "--output", tmp_path / "runs"]
    succeed(LAUNCHER, *submission)
    (cluster.folder / "silent").touch()
    assert_refused(command(LAUNCHER, *submission), "squeue", "Unable to contact")
    assert len(cluster.submitted) == 1
    (cluster.folder / "silent").unlink()
    cluster.end(1)  # SLURM knows a job that ended some minutes ago no more
    succeed(LAUNCHER, *submission)
    assert len(cluster.submitted) == 2


def test_without_slurm_nothing_is_prepared(
    row: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    output = tmp_path / "output"
    flags = ["--set", "data.recipe=multi30k", "--data", str(tmp_path), "--prepared", str(output)]
    done = command(LAUNCHER, *row, *flags, "--slurm", "--output", output)
    assert_refused(done, "--slurm needs sbatch, which is not on PATH")
    assert not output.exists()

"""Launches by their real commands: complete, resumed, refused, one from another, side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from capsnmt.checkpoints.load import load_checkpoint
from tests.launch.conftest import Launch
from tests.small_row import SMALL

# tests/faults/test_trainings.py trains on both hosts
pytestmark = [pytest.mark.system, pytest.mark.one_host]

# Small files that every start writes again.
REWRITTEN = ("config.json", "training.json", "commands.sh", "scores.json", "summary.json", ".lock")


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def snapshot(folder: Path) -> Dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files if path.name not in REWRITTEN}


def updates(run: Path) -> int:
    """The updates of the last checkpoint."""
    history = load_checkpoint(run / "checkpoints" / "checkpoint_last.pt")["optimizer_history"]
    return int(history[-1]["num_updates"])


def parameters(run: Path) -> Dict[str, torch.Tensor]:
    state = load_checkpoint(run / "checkpoints" / "checkpoint_last.pt")["model"]
    # uninitialised memory in fairseq 0.12.2
    return {name: value for name, value in state.items() if not name.endswith("_float_tensor")}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def given(prepared: Path, tmp_path: Path) -> List[object]:
    """The data, the device and the folder of the launches."""
    place = ["--prepared", prepared, "--output", tmp_path / "runs"]
    return [*place, "--cpu", "--threads", "1"]


def test_a_complete_run_is_left_as_it_is_and_continues_only_to_more_updates(
    launch: Launch, given: List[object], tmp_path: Path
) -> None:
    often = SMALL.replace("interval-updates: 4", "interval-updates: 2")
    row = write(tmp_path, "tiny", f"{often}average: {{last-updates: 1}}\n")
    words = ["--config", row, *given]
    launch(*words)
    run = tmp_path / "runs" / "tiny" / "seed-1"
    assert read(run / "config.json")["command"] == ["capsnmt-run", *map(str, words)]
    assert read(run / "training.json")["parameters"] > 0
    before = snapshot(tmp_path / "runs")
    assert launch(*words).count(": complete") == 4
    assert launch("--resume", run).count(": complete") == 4
    recorded = (run / "config.json").read_text("utf-8")
    fewer = [*words, "--max-update", "2"]
    assert "already has 4 updates, more than the 2" in launch(*fewer, status=2)
    assert "already has 4 updates, more than the 2" in launch(*fewer, "--jobs", "2", status=2)
    assert snapshot(tmp_path / "runs") == before
    assert (run / "config.json").read_text("utf-8") == recorded

    # as the row now says, whatever --max-update said: the run's own record decides
    continued = launch(*words, "--max-update", "6", "--set", "train.log-interval=1")
    assert "resuming at 4 of 6 updates" in continued
    assert updates(run) == 6
    (run / "generate-news.txt").unlink()
    again = launch("--resume", run)
    assert "-- train: complete at 6 updates" in again
    assert "-- generate news\n" in again
    assert (run / "generate-news.txt").is_file()


def test_data_that_differ_from_the_settings_are_refused(
    launch: Launch, given: List[object], tmp_path: Path
) -> None:
    words = ["--config", write(tmp_path, "tiny", SMALL), *given]
    for flags, message in (
        (["--set", "data.test-sets.old=test1"], "data.test-sets.old is not in the data"),
        (["--set", "data.test-sets.news=test1"], "data.test-sets.news is test1, but test in "),
        (["--set", "data.target-lang=fr"], "news.fr"),
    ):
        assert message in launch(*words, *flags, status=2)
    assert not list((tmp_path / "runs").rglob("config.json"))


def test_a_row_starts_from_the_trained_other_and_resumes_from_itself(
    launch: Launch, given: List[object], tmp_path: Path
) -> None:
    write(tmp_path, "base", SMALL)
    row_file = write(tmp_path, "row", "extends: base\ninit-from: base\n")
    base, row = (tmp_path / "runs" / name / "seed-1" for name in ("base", "row"))
    words = ["--config", row_file, *given]
    refused = launch(*words, status=2)
    assert f"init-from base has no finished run in {base} with the same" in refused

    launch("--config", tmp_path / "base.yaml", *given)
    said = launch(*words)
    assert "initialised from base (4 updates), trained for 4 more" in said
    initial = read(row / "training.json")["initial"]
    assert (initial["row"], initial["updates"]) == ("base", 4)
    assert initial["checkpoint"] == str(base / "checkpoints" / "checkpoint_last.pt")
    summary = read(row.parent / "summary.json")
    assert (summary["updates"], summary["init-from"], summary["initial-updates"]) == (4, "base", 4)

    assert "resuming at 4 of 8 updates" in launch(*words, "--max-update", "8")
    elsewhere = [*words[:2], *given[:2], "--output", tmp_path / "other", *given[4:]]
    shutil.copytree(base, tmp_path / "other" / "base" / "seed-1")
    launch(*elsewhere, "--max-update", "8")
    ours, through, before = map(parameters, (row, tmp_path / "other" / "row" / "seed-1", base))
    assert ours.keys() == through.keys() == before.keys()
    assert all(torch.equal(ours[name], through[name]) for name in ours)
    assert not all(torch.equal(ours[name], before[name]) for name in ours)


def test_runs_side_by_side_are_those_of_one_after_another(
    launch: Launch, given: List[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline of each seed comes first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "tiny").mkdir(parents=True)
    configs = tmp_path / "configs" / "tiny"
    write(configs, "baseline", f"{SMALL}paper: {{}}\n")
    write(configs, "other", "extends: baseline\ntrain: {lr: 0.01}\n")
    rows = ["--dataset", "tiny", "--rows", "all", "--baseline", "baseline", "--seeds", "1,2"]
    words = [*rows, *given, "--set", "score.samples=20"]
    said = [line for line in launch(*words, "--jobs", "2").splitlines() if line[:2] == "=="]
    started = [line.partition(",")[0] for line in said if "started" in line]
    assert sorted(started) == ["== baseline"] * 2 + ["== other"] * 2
    for seed in (1, 2):
        done = said.index(f"== baseline, seed {seed}: done")
        assert any(line.startswith(f"== other, seed {seed}") for line in said[done:])
        assert not any(line.startswith(f"== other, seed {seed}") for line in said[:done])
    scores = read(tmp_path / "runs" / "other" / "seed-2" / "scores.json")
    assert "baseline" in json.dumps(scores["news"])
    assert read(tmp_path / "runs" / "other" / "summary.json")["seeds"] == [1, 2]
    assert launch(*words).count(": complete") == 3 * 4

    # what is tested against a run that failed is not trained for nothing; the others end
    lost = [*words, "--output", tmp_path / "lost", "--set", "train.valid-subset=nothing"]
    said = launch(*lost, "--jobs", "2", status=1)
    for seed in (1, 2):
        assert f"== other, seed {seed}: not started, as baseline, seed {seed} failed" in said
    assert said.endswith(": failed: see launch.log in the run's folder\n")
    assert said.count("failed with exit status 1") == 2
    log = (tmp_path / "lost" / "baseline" / "seed-1" / "launch.log").read_text("utf-8")
    assert "error: train failed with exit status 1" in log
    assert not (tmp_path / "lost" / "other").exists()

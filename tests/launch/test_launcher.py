"""A complete experiment by its real commands: stopped, damaged, continued and complete."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Dict

import pytest
from capsnmt.launch.cli import main

from capsnmt import process
from capsnmt.checkpoints.resume import LAST, num_updates
from capsnmt.evaluation.metrics import METRICS
from tests.kills.launch import LAUNCHER, UPDATES, command, started, write_sources
from tests.launch.conftest import run_forked
from tests.small_row import SMALL

# Small files that every start writes again.
REWRITTEN = ("config.json", "commands.sh", "scores.json", "summary.json", ".lock", "data.lock")


def snapshot(folder: Path) -> Dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files if path.name not in REWRITTEN}


def assert_complete(folder: Path, updates: int) -> None:
    """Check that a run is trained, averaged if asked for, generated, scored and summarised."""
    last = folder / "checkpoints" / LAST
    assert num_updates(last) == updates
    logged = [json.loads(line) for line in (folder / "train.log").read_text().splitlines()]
    assert [stats["num_updates"] for stats in logged if "num_updates" in stats][-1] == str(updates)
    hypotheses = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("H-") for line in hypotheses) == 6
    assert set(json.loads((folder / "scores.json").read_text())) == {"news"}
    summary = json.loads((folder.parent / "summary.json").read_text())
    assert summary["seeds"] == [1]
    assert set(summary["scores"]["news"]) == set(METRICS)


@pytest.mark.system
@pytest.mark.one_host  # tests/system/test_two_processes and test_command_lines train on both
def test_a_complete_run_is_left_as_it_is_and_refuses_other_settings(
    prepared: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(process, "run", run_forked)
    averaging = SMALL.replace("interval-updates: 4", "interval-updates: 2")
    averaging += "average: {last-updates: 1}\n"
    (tmp_path / "tiny.yaml").write_text(averaging, encoding="utf-8")
    output = tmp_path / "runs"
    arguments = ["--config", str(tmp_path / "tiny.yaml"), "--prepared", str(prepared), "--cpu"]
    arguments += ["--threads", "1", "--output", str(output)]
    assert main(arguments) == 0, capsys.readouterr().err
    folder = output / "tiny" / "seed-1"
    assert_complete(folder, 4)
    assert num_updates(folder / "averaged.pt") == 4

    capsys.readouterr()
    before = snapshot(output)
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count(": complete") == 4, printed
    assert snapshot(output) == before

    config = (folder / "config.json").read_text(encoding="utf-8")
    assert main([*arguments, "--set", "train.lr=0.01"]) == 2
    assert "was trained with train.lr 0.005, not 0.01" in capsys.readouterr().err
    assert main([*arguments, "--max-update", "2"]) == 2
    assert "already has 4 updates, more than the 2" in capsys.readouterr().err
    assert snapshot(output) == before
    assert (folder / "config.json").read_text(encoding="utf-8") == config


@pytest.mark.system
@pytest.mark.one_host
@pytest.mark.nightly  # scripts/kill_test.sh kills one in every stage with every commit
def test_a_launch_stopped_and_damaged_continues_to_its_end(tmp_path: Path):
    sources, output = tmp_path / "sources", tmp_path / "output"
    write_sources(sources)
    arguments = command(sources, output)
    folder = output / "runs" / "tiny" / "seed-1"
    last = folder / "checkpoints" / LAST

    with started(LAUNCHER, arguments) as launch:
        launch.updates(10)
        launch.send(signal.SIGINT)
        assert launch.end() == 130
        assert launch.errors[-1] == "stopped by SIGINT: the same command resumes"
    assert 10 <= num_updates(last) < UPDATES
    # Killed while fairseq copies its checkpoint to checkpoint_last.pt.
    os.truncate(last, last.stat().st_size // 2)
    with started(LAUNCHER, arguments) as launch:
        assert launch.end() == 0, launch.errors
    assert_complete(folder, UPDATES)
    assert num_updates(folder / "averaged.pt") == UPDATES


@pytest.mark.system
def test_data_that_differ_from_the_configuration_are_refused(
    prepared: Path, capsys: pytest.CaptureFixture, tmp_path: Path
):
    (tmp_path / "tiny.yaml").write_text(SMALL, encoding="utf-8")
    given = ["--config", str(tmp_path / "tiny.yaml"), "--prepared", str(prepared), "--cpu"]
    given += ["--threads", "1", "--output", str(tmp_path / "runs")]
    assert main([*given, "--set", "data.test-sets.old=test1"]) == 2
    assert "data.test-sets.old: there is no" in capsys.readouterr().err
    assert main([*given, "--set", "data.test-sets.news=test1"]) == 2
    assert "data.test-sets.news: test1: " in capsys.readouterr().err
    assert main([*given, "--pair", "en-fr"]) == 2
    assert "news.fr" in capsys.readouterr().err

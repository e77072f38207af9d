"""A complete experiment by its real commands: killed, damaged and stopped, with equal results."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Dict

import pytest

from capsnmt.checkpoints.recovery import LAST, num_updates
from capsnmt.evaluation.metrics import METRICS
from capsnmt.experiment.cli import main
from tests.experiment.conftest import SMALL
from tests.kills.__main__ import Reference, Round
from tests.kills.launch import LAUNCHER, UPDATES, command, started

# Small files that every start writes again.
REWRITTEN = ("config.json", "commands.sh", "scores.json", "summary.json", ".lock", "data.lock")


def snapshot(folder: Path) -> Dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files if path.name not in REWRITTEN}


@pytest.mark.system
@pytest.mark.one_host  # test_preemption resumes bit for bit on both
def test_a_launch_killed_in_every_stage_damaged_and_stopped_has_the_results_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    reference = Reference(tmp_path)
    output = tmp_path / "killed"
    faults = Round(reference, output, random.Random(1))
    arguments = command(reference.sources, output)
    folder = output / "runs" / "tiny" / "seed-1"
    last = folder / "checkpoints" / LAST

    faults.interrupt_launch(["prepare", "train"], ["kill"])
    with started(LAUNCHER, arguments) as launch:
        launch.updates(10)
        launch.send(signal.SIGINT)
        assert launch.end() == 130
        assert launch.errors[-1] == "stopped by SIGINT: the same command resumes"
    assert 10 <= num_updates(last) < UPDATES
    # Killed while fairseq copies its checkpoint to checkpoint_last.pt.
    os.truncate(last, last.stat().st_size // 2)
    faults.interrupt_launch(["average", "generate news", "score news"], ["kill"])
    faults.finish_launch()
    faults.interrupt_report(["kill"])
    assert faults.faults == []

    assert num_updates(last) == UPDATES
    assert num_updates(folder / "averaged.pt") == UPDATES
    logged = [json.loads(line) for line in (folder / "train.log").read_text().splitlines()]
    assert [stats["num_updates"] for stats in logged if "num_updates" in stats][-1] == str(UPDATES)
    hypotheses = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("H-") for line in hypotheses) == 6
    assert set(json.loads((folder / "scores.json").read_text())) == {"news"}
    summary = json.loads((folder.parent / "summary.json").read_text())
    assert summary["seeds"] == [1]
    assert set(summary["scores"]["news"]) == set(METRICS)

    capsys.readouterr()
    before = snapshot(output)
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count(": complete") == 5, printed
    assert snapshot(output) == before

    config = (folder / "config.json").read_text(encoding="utf-8")
    assert main([*arguments, "--set", "train.lr=0.01"]) == 2
    assert "was trained with train.lr 0.001, not 0.01" in capsys.readouterr().err
    assert main([*arguments, "--max-update", "20"]) == 2
    assert f"already has {UPDATES} updates, more than the 20" in capsys.readouterr().err
    assert snapshot(output) == before
    assert (folder / "config.json").read_text(encoding="utf-8") == config


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

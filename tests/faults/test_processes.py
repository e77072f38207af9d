"""The launcher and what it starts: signals, a killed launcher, two launchers at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import List

import pytest

from tests.faults import launched
from tests.kills.launch import LAUNCHER, Launch, started

# the command lines of both hosts are the same code; at night both run them
pytestmark = [pytest.mark.system, pytest.mark.one_host]

UPDATES = 400  # enough that a signal arrives before the last
WAITING = "waiting for another launcher, or for the training of one that was killed"


def row(prepared: Path, folder: Path, updates: int = UPDATES) -> List[str]:
    """Return the arguments of the launcher for a row that saves once in 100 updates."""
    saving = ["--set", "train.save-interval-updates=100", "--set", "train.log-interval=1"]
    folder.mkdir(exist_ok=True)
    line = [*map(str, launched.arguments(prepared, folder)), *saving]
    return [*line, "--max-update", str(updates)]


def training_of(launch: Launch) -> int:
    """Return the process of the training that a launch has started."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in launch.started()}
    return next(pid for pid, words in commands.items() if b"capsnmt.launch.train" in words)


def test_a_stop_signal_saves_and_a_second_one_kills(prepared: Path, tmp_path: Path):
    """The first as of a terminal that closes."""
    line = row(prepared, tmp_path)
    last = tmp_path / "runs" / "row" / "seed-1" / "checkpoints" / "checkpoint_last.pt"
    with started(LAUNCHER, line) as launch:
        launch.updates(2)
        launch.send(signal.SIGHUP)
        assert launch.end() == 128 + signal.SIGHUP
        assert launch.errors[-1] == "stopped by SIGHUP: the same command resumes"
        assert not launch.started()
    saved = last.read_bytes()
    with started(LAUNCHER, line) as launch:
        launch.updates(2)
        assert any(text.startswith("-- train: resuming at ") for text in launch.lines)
        os.kill(training_of(launch), signal.SIGSTOP)  # it does not listen
        for _ in range(2):
            launch.send(signal.SIGINT)
            time.sleep(0.2)  # or the two would be one
        assert launch.end() == 128 + signal.SIGINT
        assert not launch.started()
    assert last.read_bytes() == saved


def test_a_launcher_waits_for_another_and_for_the_training_that_outlives_it(
    prepared: Path, tmp_path: Path
):
    line = row(prepared, tmp_path, UPDATES // 2)
    with started(LAUNCHER, line) as first:
        first.updates(2)
        with started(LAUNCHER, line) as stopped, started(LAUNCHER, line) as second:
            assert stopped.reaches(WAITING)
            assert second.reaches(WAITING)
            stopped.send(signal.SIGINT)
            assert stopped.end() == 128 + signal.SIGINT
            training = training_of(first)
            first.send(signal.SIGKILL)
            first.end()
            os.kill(training, 0)
            assert len(second.lines) == 1
            assert second.end() == 0, second.errors
        assert f"-- train: complete at {UPDATES // 2} updates" in second.lines
    assert (tmp_path / "runs" / "row" / "summary.json").is_file()

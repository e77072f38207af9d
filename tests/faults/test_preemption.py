"""A training that is stopped, killed or damaged, and resumed, ends as an uninterrupted one."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List

import pytest
import torch

from tests.commands import printed, succeed, training
from tests.forked import INTERPRETER
from tests.interpreter import executable, interpreter
from tests.kills.launch import HANGS, LAUNCHER, Launch, started
from tests.small_row import arguments
from tests.support import PLUGIN

pytestmark = pytest.mark.system

TRAIN = "capsnmt.launch.train"
LAST = "checkpoint_last.pt"
UPDATES = 60  # enough that a signal arrives before the last


def children(parent: int) -> List[int]:
    """Return the running children of a process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, its_parent = entry.read_text("utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(its_parent) == parent and state != "Z":
            found.append(int(entry.parent.name))
    return found


def direct(data: Path, save: Path, updates: int, *flags: object) -> List[str]:
    """Return the arguments of a training: 6 updates an epoch, saved inside epochs as well."""
    flags = ("--no-epoch-checkpoints", "--log-format", "json", *flags)
    often = ("--save-interval", 4, "--validate-interval", 4)
    flags = (*flags, *often, "--save-interval-updates", updates // 4 + 1)
    return [str(each) for each in training(data, save, "capsnmt_transformer_tiny", updates, *flags)]


def content(checkpoint: Path) -> Dict[str, Any]:
    """Return the updates, the tensors of model and optimizer, and where the training resumes."""
    state = torch.load(checkpoint, weights_only=False)
    moments = state["last_optimizer_state"]["state"]
    iterator = state["extra_state"]["train_iterator"]
    return {
        "updates": state["optimizer_history"][-1]["num_updates"],
        "position": (iterator["epoch"], iterator["iterations_in_epoch"]),
        "best": state["extra_state"].get("best"),
        **{f"moment {index}": moments[index]["exp_avg_sq"] for index in moments},
        # uninitialised memory in fairseq 0.12.2
        **{name: each for name, each in state["model"].items() if "_float_tensor" not in name},
    }


def assert_same(folder: Path, expected: Path) -> None:
    """Check that two trainings have saved the same checkpoints, bit for bit."""
    names = sorted(path.name for path in expected.glob("*.pt"))
    assert sorted(path.name for path in folder.glob("*.pt")) == names
    assert len(names) > 3
    for name in names:
        ours, theirs = content(folder / name), content(expected / name)
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            same = torch.equal(ours[key], value) if torch.is_tensor(value) else ours[key] == value
            assert same, (name, key)


def wait_for_end(running: Launch) -> None:
    """Wait until all that a process has started has ended."""
    deadline = time.monotonic() + HANGS
    while running.started():
        assert time.monotonic() < deadline, "what it has started outlives it"
        time.sleep(0.02)


def test_stopped_three_times_is_bit_for_bit_as_never_stopped(data: Path, tmp_path: Path):
    """A process loads the data, and SLURM sends its signal to all: it must neither end nor stay."""
    uninterrupted, stopped = tmp_path / "uninterrupted", tmp_path / "stopped"
    flags = ["--optimizer", "fused_adam"]
    succeed(TRAIN, *direct(data, uninterrupted, UPDATES, *flags))

    line = direct(data, stopped, UPDATES, *flags)
    stopped.mkdir()
    (stopped / "stop").touch()
    said = succeed(TRAIN, *line)
    assert f'"stopped_by": {json.dumps(str(stopped / "stop"))}, "updates": 1}}' in said
    assert '"peak_memory_gib": 0.' in said
    assert not (stopped / "stop").exists()
    done = content(stopped / LAST)["updates"]
    assert done == 1
    for signum in (signal.SIGUSR1, signal.SIGTERM):
        with started(TRAIN, [*line, "--num-workers", "1"]) as running:
            assert running.reaches(f'"num_updates": "{done + 3}"'), running.errors
            running.send(signal.SIGSTOP)  # or it may end before both signals are sent
            while not (loads := children(running.process.pid)):  # between two epochs
                assert running.process.is_alive(), running.errors
                running.send(signal.SIGCONT)
                time.sleep(0.005)
                running.send(signal.SIGSTOP)
            for process in (*loads, running.process.pid):
                os.kill(process, signum)
            running.send(signal.SIGCONT)
            assert running.end() == 0, running.errors
            wait_for_end(running)
        before, done = done, content(stopped / LAST)["updates"]
        assert before + 3 <= done < UPDATES
        name = signal.Signals(signum).name
        assert running.reaches(f'"stopped_by": "{name}", "updates": {done}}}')
    succeed(TRAIN, *line)
    assert_same(stopped, uninterrupted)
    succeed(TRAIN, *line)  # as by its commands.sh, after what follows has failed
    assert_same(stopped, uninterrupted)


@pytest.mark.one_host  # the count is ours, not the host's
def test_an_interruption_does_not_reset_the_patience(data: Path, tmp_path: Path) -> None:
    """Nothing is learned: after the first of 6 updates, two epochs find nothing better."""
    flags = ["--optimizer", "sgd", "--lr", "1e-9", "--dropout", "0", "--patience", "2"]
    each_epoch = ["--save-interval", "1", "--validate-interval", "1", "--save-interval-updates", 0]
    line = [*direct(data, tmp_path, UPDATES, *flags), *each_epoch]
    succeed(TRAIN, *line, "--max-epoch", 2)
    (tmp_path / "stop").touch()  # one update into the last epoch
    for updates in (13, 18, 18):
        succeed(TRAIN, *line)
        assert content(tmp_path / LAST)["updates"] == updates


@pytest.mark.one_host  # an older torch does not name its threads
def test_no_thread_of_a_group_of_processes_is_left_at_the_exit(data: Path, tmp_path: Path):
    """With one, one process in ten aborted at its exit. A forked one has no such exit."""
    code = """
import atexit
from pathlib import Path
from capsnmt.launch.train import cli_main
@atexit.register
def show():
    names = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
    print("at the exit:", [name for name in names if "gloo" in name])
cli_main()
"""
    group = ["--distributed-no-spawn", "--distributed-backend", "gloo", "--distributed-rank", "0"]
    meeting = ["--distributed-init-method", f"file://{tmp_path}/store", *group]
    words = [sys.executable, "-c", code, *direct(data, tmp_path, 1, *meeting)]
    assert "at the exit: []" in printed(words)


@pytest.mark.one_host  # Python makes the folders
def test_a_training_leaves_no_temporary_files(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with TemporaryDirectory() as folder:  # a worker's socket has a short path
        monkeypatch.setenv("TMPDIR", folder)
        succeed(TRAIN, *direct(data, tmp_path, 1, "--num-workers", 1))
        model = ["--path", tmp_path / LAST, "--user-dir", PLUGIN, "--cpu"]
        generate = ["fairseq_cli.generate", data, *model, "--num-workers", 1, "--max-len-b", 3]
        succeed(*generate)
        assert not list(Path(folder).glob("pymp-*"))
        long = Path(folder) / ("x" * 100)  # too long for a socket: without workers
        long.mkdir()
        monkeypatch.setenv("TMPDIR", str(long))
        succeed(*generate)


# --- by the launcher


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a launcher start the others as the tests start it: forked, not by a new interpreter."""
    monkeypatch.setenv(INTERPRETER, str(interpreter()))


WAITING = "waiting for another launcher, or for the training of one that was killed"


def long_row(prepared: Path, folder: Path, updates: int = 400) -> List[str]:
    """Return the flags of a row that saves once in 100 updates, and not when an epoch ends."""
    settings = ["save-interval-updates=100", "save-interval=1000", "log-interval=1"]
    sets = [word for setting in settings for word in ("--set", f"train.{setting}")]
    return [*arguments(prepared, folder), *sets, "--max-update", str(updates)]


def rank(running: Launch, number: int) -> int:
    """Return the process of torchrun that has a rank."""
    return next(
        pid
        for pid in running.started()
        if f"\0RANK={number}\0" in Path(f"/proc/{pid}/environ").read_text("utf-8")
    )


@pytest.mark.one_host
@pytest.mark.usefixtures("warm")
def test_two_processes_by_torchrun_stop_when_one_is_asked(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # torchrun leaves a folder
    with started(LAUNCHER, [*long_row(prepared, tmp_path), "--cpu", "2"]) as running:
        assert running.reaches("  update 2/"), running.errors
        os.kill(rank(running, 1), signal.SIGUSR1)
        assert running.end() == 128 + signal.SIGTERM
        assert running.errors[-1] == "stopped by SIGTERM: the same command resumes"
    assert sum("  update 2/" in line for line in running.lines) == 1  # the first alone logs
    last = tmp_path / "runs" / "row" / "seed-1" / "checkpoints" / LAST
    assert 2 <= content(last)["updates"] < 400


# an interpreter of a training that does not listen
DEAF = """#!/bin/sh
trap '' INT TERM
exec sleep 900
"""


@pytest.mark.one_host  # the launcher is the same code on both
@pytest.mark.usefixtures("warm")
def test_a_stop_signal_saves_and_a_second_one_kills(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first as of a terminal that closes."""
    monkeypatch.setenv("LOGLEVEL", "ERROR")  # of fairseq: it leaves out what it was asked for
    line = long_row(prepared, tmp_path)
    with started(LAUNCHER, line) as launch:
        assert launch.reaches("  update 2/"), launch.errors
        launch.send(signal.SIGHUP)
        assert launch.end() == 128 + signal.SIGHUP
        assert launch.errors[-1] == "stopped by SIGHUP: the same command resumes"
        assert not launch.started()
    checkpoints = tmp_path / "runs" / "row" / "seed-1" / "checkpoints"
    saved, request = content(checkpoints / LAST)["updates"], checkpoints / "stop"
    assert 2 <= saved < 400
    assert not request.exists()
    monkeypatch.setenv(INTERPRETER, str(executable(tmp_path / "deaf", DEAF)))
    with started(LAUNCHER, line) as launch:
        assert launch.reaches(f"-- train: resuming at {saved} of 400")
        while not launch.started():
            assert launch.process.is_alive(), launch.errors
        launch.send(signal.SIGINT)
        while not request.exists():  # or the two signals would be one
            assert launch.process.is_alive(), launch.errors
            time.sleep(0.005)
        launch.send(signal.SIGINT)
        assert launch.end() == 128 + signal.SIGINT
        assert not launch.started()


@pytest.mark.one_host  # the launcher is the same code on both
@pytest.mark.usefixtures("warm")
def test_a_launcher_waits_for_another_and_for_the_training_that_outlives_it(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Which saves only when it is asked to stop, as the line says that they print."""
    line = [*long_row(prepared, tmp_path, 2000), "--set", "train.save-interval-updates=2000"]
    with started(LAUNCHER, line) as first:
        assert first.reaches("  update 2/"), first.errors
        monkeypatch.setenv(INTERPRETER, str(shutil.which("false")))  # they do not train
        with started(LAUNCHER, line) as stopped, started(LAUNCHER, line) as second:
            assert stopped.reaches(WAITING)
            assert second.reaches(WAITING)
            stopped.send(signal.SIGINT)
            assert stopped.end() == 128 + signal.SIGINT
            first.send(signal.SIGKILL)
            first.end()
            assert len(second.lines) == 1
            (request,) = re.findall(r"touch .+(?= to stop it)", second.lines[0])
            subprocess.run(request, shell=True, check=True)  # as its reader would
            assert second.reaches("-- train: resuming at "), second.errors
            assert second.end() == 1

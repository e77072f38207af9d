"""``scripts/run_evidence.sh`` without its trainings: flags, order, how many at a time, a stop."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.scripts import planned
from tests.support import REPO

# the launcher does the work, and its tests run on both hosts
pytestmark = [pytest.mark.system, pytest.mark.one_host]

SCRIPT = ["bash", str(REPO / "scripts/run_evidence.sh")]
# an interpreter that only writes down when it started and ended
STUB = """#!/usr/bin/env bash
[ "$1" != -c ] || exit 0  # it is asked for its version
echo "start $*" >>"$CALLS"
trap 'echo "saved $*" >>"$CALLS"; exit 143' TERM
sleep {seconds} &
wait
echo "end $*" >>"$CALLS"
"""


def script(*flags: str, **kwargs: Any) -> subprocess.CompletedProcess:
    """Run the script to its end."""
    command = [*SCRIPT, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def commands(*flags: str) -> List[List[str]]:
    """Return the planned commands, without the interpreter and ``-m``."""
    done = script("--dry-run", *flags)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line)[2:] for line in done.stdout.splitlines()]


@pytest.fixture
def stubbed(tmp_path: Path) -> Dict[str, str]:
    """An environment in which no command does anything; ``CALLS`` names the file of its calls."""
    stub = tmp_path / "python"
    stub.write_text(STUB.format(seconds=0.2), "utf-8")
    stub.chmod(0o755)
    return {**os.environ, "PYTHON": str(stub), "CALLS": str(tmp_path / "calls")}


PUBLISHED = ["--recipe", "published"]


@pytest.mark.parametrize(
    ("dataset", "flags"),
    [
        ("multi30k", []),
        ("multi30k", ["--gpu"]),
        ("multi30k_lowercase", PUBLISHED),
        ("logical_inference", []),
        ("logical_inference", ["--gpu"]),
    ],
)
def test_it_trains_every_row_and_each_is_accepted(dataset: str, flags: List[str]) -> None:
    chosen = [] if flags == PUBLISHED else ["--dataset", dataset]
    started = commands(*chosen, *flags, "--max-update", "2000")
    trainings = [command for command in started if command[0] == "capsnmt.launch"]
    *analysis, report = started[len(trainings) :]
    rows = Counter()
    for _, *arguments in trainings:
        (run,) = planned(arguments)
        row = run.config.row
        assert arguments[:2] == ["--config", f"{dataset}/{row}"]
        rows[row] += 1
        tested = dataset != "logical_inference" and row != "baseline"
        assert ("--baseline" in arguments) == tested
    assert set(rows) == {path.stem for path in (REPO / "configs" / dataset).glob("*.yaml")} - {
        "base"
    }
    assert set(rows.values()) == ({1, 3} if (dataset, flags) == ("multi30k", []) else {3})
    analysed = dataset != "logical_inference"
    assert [module for module, *_ in analysis] == ["capsnmt.analysis"] * analysed
    assert report[0] == "capsnmt.report"
    assert len(report) == len(rows) + 5


def test_the_baseline_comes_first_and_no_more_run_than_allowed(
    tmp_path: Path, stubbed: Dict[str, str]
) -> None:
    output = tmp_path / "out put"
    done = script(
        "--jobs", "3", "--seeds", "4,5", "--minutes", "5", "--output", str(output), env=stubbed
    )
    assert done.returncode == 0, done.stderr
    calls = Path(stubbed["CALLS"]).read_text("utf-8").splitlines()
    running, most, baselines = 0, 0, 0
    for call in calls:
        started = call.startswith("start")
        running += 1 if started else -1
        most = max(most, running)
        if "multi30k/baseline " in call:
            baselines += not started
        elif "capsnmt.launch" in call:
            assert baselines == 2
    assert (most, running) == (3, 0)
    assert "capsnmt.analysis" in calls[-4]
    assert "capsnmt.report" in calls[-1]
    assert (output / "em_routing-5.log").exists()


def test_the_published_recipe_finishes_a_row_before_the_next() -> None:
    started = [shlex.join(command) for command in commands(*PUBLISHED, "--seeds", "4,5")]
    assert ["em_routing --seed 4" in started[2], "em_routing --seed 5" in started[3]] == [True] * 2
    assert all("--threads 1" in command for command in started[:4])
    assert "--threads 2" in shlex.join(commands(*PUBLISHED, "--threads", "2")[0])


def test_the_list_says_how_far_each_training_is(tmp_path: Path) -> None:
    run = tmp_path / "baseline" / "seed-1"
    run.mkdir(parents=True)
    config = {"version": 2, "row": "baseline", "seed": 1, "data": "data", "settings": {}}
    (run / "config.json").write_text(json.dumps(config), "utf-8")
    (run / "train.log").write_text('{"loss": "8", "num_updates": "1200"}\n', "utf-8")
    listed = script(*PUBLISHED, "--seeds", "1,2", "--list", "--output", str(tmp_path))
    assert listed.returncode == 0, listed.stderr
    lines = listed.stdout.splitlines()
    assert lines[:2] == ["baseline, seed 1: at update 1,200", "baseline, seed 2: not started"]
    assert len(lines) == 14
    assert all(line.endswith(": not started") for line in lines[1:])


def test_a_stop_reaches_every_training(tmp_path: Path, stubbed: Dict[str, str]) -> None:
    Path(stubbed["PYTHON"]).write_text(STUB.format(seconds=60), "utf-8")
    process = subprocess.Popen(
        [*SCRIPT, "--jobs", "2", "--output", str(tmp_path / "out")],
        env=stubbed,
        stdout=subprocess.PIPE,
        text=True,
    )
    calls = Path(stubbed["CALLS"])
    deadline = time.monotonic() + 60
    while not (calls.exists() and calls.read_text("utf-8").count("start") == 2):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "repeat the same command" in out
    assert calls.read_text("utf-8").count("saved") == 2


def test_the_time_limit_stops_every_training(tmp_path: Path, stubbed: Dict[str, str]) -> None:
    Path(stubbed["PYTHON"]).write_text(STUB.format(seconds=300), "utf-8")
    sleep = tmp_path / "sleep"  # a minute takes two seconds
    sleep.write_text(
        '#!/bin/sh\n[ "$1" = 60 ] && exec /bin/sleep 2\nexec /bin/sleep "$@"\n', "utf-8"
    )
    sleep.chmod(0o755)
    paths = {**stubbed, "PATH": f"{tmp_path}:{stubbed['PATH']}"}
    flags = ("--minutes", "1", "--jobs", "2", "--output", str(tmp_path / "out"))
    done = script(*flags, env=paths, timeout=60)
    assert done.returncode == 1
    assert "repeat the same command" in done.stdout
    assert Path(stubbed["CALLS"]).read_text("utf-8").count("saved") == 2


def test_a_failed_baseline_ends_it(tmp_path: Path, stubbed: Dict[str, str]) -> None:
    done = script("--output", str(tmp_path / "out"), env={**stubbed, "PYTHON": "false"})
    assert done.returncode == 1
    assert "3 training(s) of the baseline failed: see " in done.stderr


def test_rows_that_need_no_baseline_run_without_it(tmp_path: Path, stubbed: Dict[str, str]) -> None:
    flags = ("--dataset", "logical_inference", "--output", str(tmp_path / "out"))
    done = script(*flags, env={**stubbed, "PYTHON": "false"})
    assert done.returncode == 1
    assert "12 run(s) failed: see " in done.stderr


def test_the_help_is_the_whole_head_of_the_script() -> None:
    shown = script("--help").stdout.splitlines()
    head = Path(SCRIPT[1]).read_text("utf-8").split("set -euo")[0].splitlines()[1:]
    assert shown == [line[2:] for line in head]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--jobs", "0"], "--jobs 0: give a whole number, 1 or more"),
        (["--minutes", "x"], "--minutes x: give a whole number"),
        (["--max-update", "-1"], "--max-update -1: give a whole number"),
        (["--seeds", "1,2,1"], "--seeds 1,2,1: gives a seed twice"),
        (["--recipe", "mine"], "--recipe mine: choose published"),
        (["--recipe", "published", "--dataset", "logical_inference"], "is of multi30k"),
        (["--seeds", "1;2"], "--seeds 1;2: give whole numbers separated by commas"),
        (["--data", "/nowhere"], "--data /nowhere: is no folder"),
        (["--rows", "all"], "unknown flag '--rows'"),
        (["--dataset", "wmt"], "--dataset wmt: choose multi30k or logical_inference"),
        (["--output"], "--output needs a value"),
    ],
)
def test_a_bad_flag_is_one_line_with_the_fix(flags: List[str], named: str) -> None:
    done = script("--dry-run", *flags)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert named in done.stderr

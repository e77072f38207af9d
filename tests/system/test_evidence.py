"""``scripts/run_evidence.sh`` without its trainings: flags, order, what is kept, a stop."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, List

import pytest

from tests.scripts import planned
from tests.support import REPO

# the launcher does the work, and its tests run on both hosts
pytestmark = [pytest.mark.system, pytest.mark.one_host]

SCRIPT = ["bash", str(REPO / "scripts/run_evidence.sh")]


# an interpreter that only writes down when it started and ended
def script(*flags: str, **kwargs: Any) -> subprocess.CompletedProcess:
    """Run the script to its end."""
    command = [*SCRIPT, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


def commands(*flags: str) -> List[List[str]]:
    """Return the planned commands, without the interpreter and ``-m``."""
    done = script("--dry-run", *flags)
    assert done.returncode == 0, done.stderr
    return [shlex.split(line)[2:] for line in done.stdout.splitlines()]


PUBLISHED = ["--recipe", "published"]
PLACES = ((0, "baseline"), (2, "em_routing"))


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
    launches = [command for command in started if command[0] == "capsnmt.launch"]
    *_, report = started
    rows = Counter()
    for _, *arguments in launches:
        for run in planned(arguments):
            assert run.settings.dataset == dataset
            rows[run.config.row] += 1
            tested = dataset != "logical_inference" and run.config.row != "baseline"
            assert (run.config.baseline == "baseline") == tested
    assert set(rows) == {path.stem for path in (REPO / "configs" / dataset).glob("*.yaml")} - {
        "base"
    }
    assert set(rows.values()) == ({1, 3} if (dataset, flags) == ("multi30k", []) else {3})
    modules = [module for module, *_ in started]
    assert modules.count("capsnmt.analysis") == (dataset != "logical_inference")
    assert report[0] == "capsnmt.report"
    assert len(report) == len(rows) + 5


def test_the_published_recipe_keeps_the_results_of_a_row_before_the_next() -> None:
    started = commands(*PUBLISHED, "--seeds", "4,5", "--threads", "2")
    assert [words[0] for words in started[:4]] == ["capsnmt.launch", "scripts.results"] * 2
    assert all(f"--rows {row}" in shlex.join(started[place]) for place, row in PLACES)
    assert all("--seeds 4,5" in shlex.join(started[place]) for place, _ in PLACES)
    assert "--threads 2" in shlex.join(started[0])


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
    rows = {path.stem for path in (REPO / "configs/multi30k_lowercase").glob("*.yaml")} - {"base"}
    assert len(lines) == 2 * len(rows)
    assert all(line.endswith(": not started") for line in lines[1:])


def test_the_time_limit_stops_the_launch(tmp_path: Path) -> None:
    stub = tmp_path / "python"  # an interpreter that says how it ends
    stub.write_text(
        '#!/usr/bin/env bash\n[ "$1" != -c ] || exit 0\n'
        f"trap 'echo saved >>{tmp_path}/calls; exit 143' TERM\nsleep 300 & wait\n",
        "utf-8",
    )
    timeout = tmp_path / "timeout"  # a minute takes a second
    timeout.write_text('#!/bin/sh\nshift 2\nexec /usr/bin/timeout 1 "$@"\n', "utf-8")
    for path in (stub, timeout):
        path.chmod(0o755)
    variables = {**os.environ, "PYTHON": str(stub), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = script("--minutes", "1", "--output", str(tmp_path / "out"), env=variables, timeout=60)
    assert done.returncode == 124
    assert (tmp_path / "calls").read_text("utf-8") == "saved\n"

"""The scripts of probing and logical inference: the commands that they would run."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import List

import pytest

from capsnmt.experiment import launch
from capsnmt.experiment.arguments import parse
from tests.commands import environment
from tests.support import REPO

# plans are text: they are the same on every host
pytestmark = [pytest.mark.system, pytest.mark.one_host]


def script(name: str, *flags: str, cwd: Path) -> subprocess.CompletedProcess:
    """Run a script of the project as a user starts it."""
    return subprocess.run(
        ["bash", str(REPO / "scripts" / name), *flags],
        cwd=cwd,
        env={**environment(), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def modules(done: subprocess.CompletedProcess) -> Counter:
    """Count how often each module would run."""
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if " -m " in line]
    return Counter(words[words.index("-m") + 1] for words in lines)


def test_the_recorded_results_are_four_systems_on_three_tasks_and_with_three_seeds(
    tmp_path: Path,
) -> None:
    (tmp_path / "data" / "propositional_logic").mkdir(parents=True)
    (tmp_path / "data" / "multi30k").mkdir()
    (tmp_path / "data" / "multi30k" / "train.en").touch()
    done = script("run_classification_on_cpu.sh", "--data", "data", "--dry-run", cwd=tmp_path)
    assert modules(done) == {
        "capsnmt.sentences.probing.build": 4 * 3,
        "capsnmt.experiment.training": 4 * 3 + 4 * 3,
        "capsnmt.experiment.evaluate_classifier": 4 * 3 + 4 * 3,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    bad = script("run_classification_on_cpu.sh", "--data", "nothing", cwd=tmp_path)
    assert (bad.returncode, bad.stderr.count("\n")) == (1, 1)
    assert "--data 'nothing': give a folder with propositional_logic" in bad.stderr


@pytest.mark.parametrize(
    ("flags", "systems"),
    [
        (["--dataset", "probing_li2019"], 3 * 10),
        (["--dataset", "probing_li2021"], 4 * 10),
        (["--dataset", "logical_inference", "--seeds", "1,2,3"], 4 * 3),
    ],
)
def test_all_rows_are_the_papers_systems(flags: List[str], systems: int) -> None:
    options = parse([*flags, "--rows", "all"])
    runs = launch.make_runs(options, launch.choose_device(1, None, None))
    assert len({run.folder.path for run in runs}) == len(runs) == systems
    for run in runs:
        assert [stage.name for stage in run.evaluation()] == ["evaluate"]


def test_an_unknown_data_set_is_one_line_with_the_known_ones(tmp_path: Path) -> None:
    flags = ["--dataset", "probing_tiny", "--rows", "all"]
    done = script("run_probing.sh", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "--dataset probing_tiny: choose from " in done.stderr
    assert "probing_li2021" in done.stderr
    assert len(done.stderr.splitlines()) == 1

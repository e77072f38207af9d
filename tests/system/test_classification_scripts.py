"""The scripts of probing and logical inference: what they would run, from any folder."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from capsnmt.experiment.classification_run import main
from tests.commands import environment
from tests.support import REPO

# plans are text: they are the same on every host
pytestmark = [pytest.mark.system, pytest.mark.one_host]


def script(name: str, *flags: str, cwd: Path) -> subprocess.CompletedProcess:
    """A script of the project as a user starts it, ended."""
    return subprocess.run(
        ["bash", str(REPO / "scripts" / name), *flags],
        cwd=cwd,
        env={**environment(), "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def modules(done: subprocess.CompletedProcess) -> Counter:
    """How often each module would run."""
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if " -m " in line]
    return Counter(words[words.index("-m") + 1] for words in lines)


def test_probing_builds_and_trains_nothing_when_dry(tmp_path: Path) -> None:
    flags = ["--setting", "multi30k", "--text", "train.en", "--seeds", "1,2", "--dry-run"]
    done = script("run_probing.sh", *flags, cwd=tmp_path)
    assert modules(done) == {
        "capsnmt.sentences.probing.build": 1,
        "fairseq_cli.train": 24,
        "capsnmt.experiment.classification_evaluate": 24,
    }
    assert not list(tmp_path.iterdir())


def test_probing_fetches_sentevals_tasks_when_no_data_is_given(tmp_path: Path) -> None:
    done = script("run_probing.sh", "--setting", "li2019", "--dry-run", cwd=tmp_path)
    planned = modules(done)
    assert planned["capsnmt.sentences.probing.download"] == 1
    assert planned["fairseq_cli.train"] == 3 * 10
    assert not list(tmp_path.iterdir())


def test_logical_inference_is_four_systems_with_three_seeds(tmp_path: Path) -> None:
    flags = ["--setting", "cpu", "--data", "logic", "--dry-run"]
    planned = modules(script("run_logical_inference.sh", *flags, cwd=tmp_path))
    assert planned["fairseq_cli.train"] == 4 * 3
    assert not planned["capsnmt.sentences.logical_inference.generate"]
    generated = script("run_logical_inference.sh", "--dry-run", cwd=tmp_path)
    assert modules(generated) == {**planned, "capsnmt.sentences.logical_inference.generate": 1}
    assert not list(tmp_path.iterdir())


def test_a_plan_is_the_same_however_its_folders_are_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    plans = []
    for folder in (Path(), tmp_path, tmp_path / "x" / ".."):
        configs = str(REPO / "configs" / "logical_inference" / "cpu")
        where = ["--data", str(folder / "data"), "--output", str(folder / "runs")]
        assert main([configs, *where, "--dry-run"]) == 0
        plans.append(capsys.readouterr().out)
    assert plans[0] == plans[1] == plans[2] != ""


@pytest.mark.parametrize("name", ["run_probing.sh", "run_logical_inference.sh"])
def test_an_unknown_setting_is_one_line_with_the_known_ones(name: str, tmp_path: Path) -> None:
    done = script(name, "--setting", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: --setting 'tiny' is unknown: choose from ")
    assert "li2021" in done.stderr
    assert len(done.stderr.splitlines()) == 1

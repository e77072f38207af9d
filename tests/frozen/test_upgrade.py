"""What an older version left on a disk is read, finished and continued by this one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import zip_longest
from pathlib import Path
from typing import Dict, Iterator, List

import pytest

from tests.commands import ON_CPU
from tests.frozen.kit import World, load, same, variables
from tests.frozen.test_frozen import MAIN_HOST, world
from tests.frozen.upgrade import DATA, restore
from tests.support import PLUGIN

__all__ = ["world"]
pytestmark = pytest.mark.system
REWRITTEN = ("config.json", "commands.sh", "scores.json", "summary.json", "console.log")


@pytest.fixture(scope="module")
def old(world: World) -> Iterator[Path]:
    """The files of an older version: a prepared corpus, and a finished run with its checkpoints."""
    folder = world.folder / f"old-{os.getpid()}"
    restore(world, folder)
    yield folder
    shutil.rmtree(folder)


def launch(folder: Path, *more: str) -> List[str]:
    """The arguments of the launch that made the run."""
    launched, data = folder / "launched", folder / "prepared-iwslt15_en_vi/data"
    given = ["--config", launched / "tiny.yaml", "--prepared", data, "--cpu", "--threads", "1"]
    return [*map(str, given), "--output", str(launched / "runs"), "--max-update", "8", *more]


def times(run: Path) -> Dict[str, int]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in REWRITTEN]
    return {path.name: path.stat().st_mtime_ns for path in files if path.name[0] != "."}


def test_an_old_run_is_complete_and_its_job_starts(world: World, old: Path) -> None:
    run = old / "launched/runs/tiny/seed-1"
    before = times(run)
    said = world.run("capsnmt-run", *launch(old))
    assert said.count(": complete") == 4, said
    job = subprocess.run(
        ["bash", str(run / "job.sh")],
        env={**variables(), "SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert job.stdout.count(": complete") == 4, job.stdout
    assert times(run) == before


def test_an_old_run_has_its_translations_and_is_reported(world: World, old: Path) -> None:
    run = old / "launched/runs/tiny/seed-1"
    source = (old / "prepared-iwslt15_en_vi/data/raw/test.en").read_text("utf-8")
    said = world.run("capsnmt-translate", run, "--nbest", "2", "--scores", stdin=source)
    before = (DATA / "translated.txt").read_text("utf-8")
    for old_line, line in zip_longest(before.splitlines(), said.splitlines(), fillvalue=""):
        assert same(old_line, line)
    world.run("capsnmt-report", old / "launched/runs", "--output", old / "report")
    assert "tiny" in (old / "report/report.md").read_text("utf-8")


@MAIN_HOST  # checkpoints of both hosts, which differ in a buffer, have no mean
def test_an_old_checkpoint_is_validated_averaged_and_trained_on(world: World, old: Path) -> None:
    checkpoints = old / "launched/runs/tiny/seed-1/checkpoints"
    last, mean = checkpoints / "checkpoint_last.pt", old / "mean.pt"
    flags = ["--user-dir", PLUGIN, "--path", last, "--task", "translation", *ON_CPU]
    data = old / "prepared-iwslt15_en_vi/data/bin"
    assert "loss" in world.log("fairseq-validate", data, *flags, "--batch-size", "8")
    world.run("capsnmt-average", last, "--output", mean)
    assert load(mean)["model"].keys() == load(last)["model"].keys()
    resumed = shutil.copytree(old / "launched", old / "resumed")
    arguments = [word.replace(f"{old}/launched/runs", f"{resumed}/runs") for word in launch(old)]
    said = world.run("capsnmt-run", *arguments, "--max-update", "10")
    assert re.search(r"resuming at 8 of 10 updates", said), said
    state = load(resumed / "runs/tiny/seed-1/checkpoints/checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 10

"""What an older version left on a disk: checkpoints are used on, run folders refused."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.commands import ON_CPU
from tests.frozen.kit import World, load, same
from tests.frozen.test_frozen import world
from tests.frozen.upgrade import DATA, restore
from tests.support import PLUGIN

__all__ = ["world"]
pytestmark = pytest.mark.system
REFUSED = (
    "config.json was made by another version of capsnmt; launch the row again with another "
    "--output, or delete the folder"
)


@pytest.fixture(scope="module")
def old(world: World) -> Iterator[Path]:
    """The files of an older version: a prepared corpus, and a finished run with its checkpoints."""
    folder = world.folder / f"old-{os.getpid()}"
    restore(world, folder)
    yield folder
    shutil.rmtree(folder)


def test_an_old_run_is_refused_in_one_line_that_says_what_to_do(world: World, old: Path) -> None:
    launched, data = old / "launched", old / "prepared-iwslt15_en_vi/data"
    run, page = launched / "runs/tiny/seed-1", old / "page"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name[0] != "."}
    for command, *arguments in (
        ("capsnmt-run", "--config", launched / "tiny.yaml", "--prepared", data, "--cpu",
         "--threads", "1", "--output", launched / "runs", "--max-update", "8"),
        ("capsnmt-report", launched / "runs", "--output", page),
        ("capsnmt-analyse", run, "--output", page),
        ("capsnmt-translate", run),
    ):  # fmt: skip
        done = world.start(command, *arguments)
        assert done.returncode == 2, done.stderr
        *_, line = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert line.endswith(REFUSED)
    assert not page.exists()
    now = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name[0] != "."}
    assert now == before


def test_an_old_checkpoint_has_its_translations(world: World, old: Path) -> None:
    said = world.run(
        *("fairseq-generate", old / "prepared-iwslt15_en_vi/data/bin", "--user-dir", PLUGIN),
        *("--path", old / "launched/runs/tiny/seed-1/averaged.pt", "--gen-subset", "test"),
        *("--beam", "3", "--nbest", "2", "--max-len-b", "8", "--post-process", "subword_nmt"),
        *("--required-batch-size-multiple", "1", *ON_CPU),
    )
    found = [line.split("\t") for line in said.splitlines() if line.startswith("D-")]
    found.sort(key=lambda parts: int(parts[0][2:]))  # stable: the better one stays first
    lines = [f"{int(name[2:]) + 1}\t{float(score):.4f}\t{text}" for name, score, text in found]
    before = (DATA / "translated.txt").read_text("utf-8").splitlines()
    assert len(lines) == len(before)
    assert all(map(same, before, lines)), lines


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the checkpoint is of the main host")
# checkpoints of both hosts, which differ in a buffer, have no mean
def test_an_old_checkpoint_is_validated_averaged_and_trained_on(world: World, old: Path) -> None:
    run, mean = old / "launched/runs/tiny/seed-1", old / "mean.pt"
    last = run / "checkpoints/checkpoint_last.pt"
    flags = ["--user-dir", PLUGIN, "--path", last, "--task", "translation", *ON_CPU]
    data = old / "prepared-iwslt15_en_vi/data/bin"
    assert "loss" in world.log("fairseq-validate", data, *flags, "--batch-size", "8")
    world.run("capsnmt-average", last, "--output", mean)
    assert load(mean)["model"].keys() == load(last)["model"].keys()
    trained = (run / "commands.sh").read_text("utf-8").partition("# train\n")[2].splitlines()[0]
    words = shlex.split(trained)[3:]  # without python -m MODULE
    world.run("fairseq-train", *words, "--max-update", "10")
    assert load(last)["optimizer_history"][-1]["num_updates"] == 10

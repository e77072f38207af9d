"""What an older version left on a disk: checkpoints are used on, run folders refused."""

import argparse
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterator

import pytest
import torch
from torch import Tensor

from tests.commands import ON_CPU
from tests.frozen.kit import World, load, same, weight
from tests.frozen.test_frozen import world
from tests.interpreter import ROOT
from tests.support import PLUGIN

__all__ = ["world"]
pytestmark = pytest.mark.system
# never recorded again: what users have on their disks does not change with the code
DATA = Path(__file__).with_name("data") / "upgrade"
REFUSED = (
    "config.json was made by another version of capsnmt; launch the row again with another "
    "--output, or delete the folder"
)


def from_text(value: Any, made: Dict[str, Tensor], place: str = "") -> Any:
    """A checkpoint from JSON, with the values of the formula for tensors of several numbers."""
    if isinstance(value, list):
        return [from_text(each, made, f"{place}.{k}") for k, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        dtype = getattr(torch, value["dtype"])
        if "tensor" in value:
            return torch.tensor(value["tensor"], dtype=dtype)
        values = weight(place.partition(".model.")[2] or place, value["shape"])
        if "exp_avg" in place:  # of the size of gradients, and squares are positive
            values = values * 1e-3 if place.endswith("exp_avg") else values.abs() * 1e-3
        made[place] = values.to(dtype)
        return made[place]
    if "same" in value:
        return made[value["same"]]
    if "namespace" in value:
        return argparse.Namespace(**from_text(value["namespace"], made, place))
    if "tuple" in value:
        return tuple(from_text(each, made, place) for each in value["tuple"])
    if "items" in value:
        return {k: from_text(each, made, f"{place}.{k}") for k, each in value["items"]}
    return {key: from_text(each, made, f"{place}.{key}") for key, each in value.items()}


def restore(world: World, folder: Path) -> None:
    """Make the files of the old version in a folder: data, a finished run, its records."""

    def filled(path: Path) -> str:
        text = path.read_text("utf-8")
        for name, place in (("@PYTHON@", world.python), ("@HERE@", folder), ("@ROOT@", ROOT)):
            # a word of bash with a folder in it
            quoted = str(place).replace(" ", "\\ ") if path.suffix == ".sh" else str(place)
            text = text.replace(name, quoted)
        return text

    for path in DATA.rglob("*"):
        if path.is_file() and path.parent != DATA:
            target = folder / path.relative_to(DATA)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(filled(path), "utf-8")
    data = folder / "prepared-iwslt15_en_vi/data"
    (data / "bin/dict.vi.txt").unlink()  # the same as the other: both are written again
    world.run(
        *("fairseq-preprocess", "-s", "en", "-t", "vi", "--joined-dictionary"),
        *("--srcdict", data / "bin/dict.en.txt", "--destdir", data / "bin"),
        *(f"--{split}pref={data}/bpe/{split}" for split in ("train", "valid", "test")),
    )
    run = folder / "launched/runs/tiny/seed-1"
    (run / "checkpoints").mkdir()
    state = from_text(json.loads(filled(DATA / "checkpoint.json")), {})
    torch.save(state, run / "checkpoints" / "checkpoint_last.pt")
    del state["last_optimizer_state"]
    state["extra_state"]["averaged_checkpoints"] = ["checkpoint_1_4.pt", "checkpoint_2_8.pt"]
    torch.save(state, run / "averaged.pt")


@pytest.fixture(scope="module")
def old(world: World) -> Iterator[Path]:
    """The files of an older version: a prepared corpus, and a finished run with its checkpoints."""
    folder = world.folder / f"old-{os.getpid()}"
    restore(world, folder)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.one_host  # the commands are the same code on both
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

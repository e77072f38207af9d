"""Checkpoints and run folders of the version that the net begins with, as text.

Its files are made again from ``data/upgrade``, which is never recorded again: what users have on
their disks does not change with the code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, List

import torch
from torch import Tensor

from tests.frozen.interpreter import ROOT
from tests.frozen.kit import World, weight

DATA = Path(__file__).with_name("data") / "upgrade"


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


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def restore(world: World, folder: Path) -> None:
    """Make the files of the old version in a folder: data, a finished run, its records."""

    def filled(path: Path) -> str:
        text = path.read_text("utf-8").replace("@PYTHON@", str(world.python))
        return text.replace("@HERE@", str(folder)).replace("@ROOT@", str(ROOT))

    for path in DATA.rglob("*"):
        if path.is_file() and path.parent != DATA:
            target = folder / path.relative_to(DATA)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(filled(path), "utf-8")
    data = folder / "prepared-iwslt15_en_vi/data"
    shutil.move(str(data / "bin"), str(data / "dictionaries"))
    world.run(
        *("fairseq-preprocess", "-s", "en", "-t", "vi", "--joined-dictionary"),
        *("--srcdict", data / "dictionaries/dict.en.txt", "--destdir", data / "bin"),
        *(f"--{split}pref={data}/bpe/{split}" for split in ("train", "valid", "test")),
    )
    (data / "bin/preprocess.log").unlink(missing_ok=True)
    shutil.rmtree(data / "dictionaries")
    run = folder / "launched/runs/tiny/seed-1"
    (run / "checkpoints").mkdir()
    state = from_text(json.loads(filled(DATA / "checkpoint.json")), {})
    for name in ("checkpoint_1_4.pt", "checkpoint_2_8.pt", "checkpoint_last.pt"):
        torch.save(state, run / "checkpoints" / name)
    del state["last_optimizer_state"]
    state["extra_state"]["averaged_checkpoints"] = ["checkpoint_1_4.pt", "checkpoint_2_8.pt"]
    torch.save(state, run / "averaged.pt")
    (folder / "start-row").mkdir()  # the model that the row started from
    shutil.copy(run / "averaged.pt", folder / "start-row/start.pt")
    write_stages(run, data)


def write_stages(run: Path, data: Path) -> None:
    """The record of completed stages as it was: a key of the command's words and of the inputs."""
    model, output = run / "averaged.pt", run / "generate-test.txt"
    last = run / "checkpoints/checkpoint_last.pt"
    files: Dict[str, List[List[Path]]] = {
        "train": [[], [last]],
        "average": [[last], [model]],
        "generate test": [[model, data / "manifest.json"], [output]],
        "score test": [[output, data / "raw/test.vi"], [run / "scores-test.json"]],
    }
    lines = (run / "commands.sh").read_text("utf-8").splitlines()
    commands = {
        title[2:]: shlex.split(line.partition(" >")[0])
        for title, line in zip(lines, lines[1:])
        if title[2:] in files
    }
    stages = {}
    for name, (inputs, outputs) in files.items():
        words = commands[name][3:]  # without python -m MODULE
        words = [word for before, word in zip(["", *words], words) if before != "--user-dir"]
        text = json.dumps([words, {str(path): sha256(path) for path in inputs}])
        stages[name] = {
            "key": hashlib.sha256(text.encode()).hexdigest(),
            "outputs": {str(path): sha256(path) for path in outputs},
        }
    (run / "stages.json").write_text(json.dumps(stages, indent=2), "utf-8")

"""Checkpoints and run folders of the version that the net begins with, as text.

Its files are made again from ``data/upgrade``, which is never recorded again: what users have on
their disks does not change with the code.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Dict

import torch
from torch import Tensor

from tests.frozen.kit import World, weight
from tests.interpreter import ROOT

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

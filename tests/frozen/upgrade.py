"""Checkpoints and run folders of 9b8d63a as text, from which its files are made again.

``data/upgrade`` was written once by that version and is never recorded again: what users have on
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

from tests.frozen.kit import World, load, weight

DATA = Path(__file__).with_name("data") / "upgrade"


def to_text(value: Any, known: Dict[int, str], place: str = "") -> Any:
    """A checkpoint as JSON: of a tensor of several numbers its shape, and not its values."""
    if isinstance(value, Tensor):
        if value.numel() <= 1:
            return {"tensor": value.tolist(), "dtype": str(value.dtype)[6:]}
        if (first := known.setdefault(value.data_ptr(), place)) != place:
            return {"same": first}
        return {"shape": list(value.shape), "dtype": str(value.dtype)[6:]}
    if isinstance(value, argparse.Namespace):
        return {"namespace": to_text(vars(value), known, place)}
    if isinstance(value, tuple):
        return {"tuple": [to_text(each, known, place) for each in value]}
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: to_text(each, known, f"{place}.{key}") for key, each in value.items()}
        return {"items": [[k, to_text(v, known, f"{place}.{k}")] for k, v in value.items()]}
    if isinstance(value, list):
        return [to_text(each, known, f"{place}.{k}") for k, each in enumerate(value)]
    assert value is None or type(value) in (bool, int, float, str), (place, type(value))
    return value


def from_text(value: Any, made: Dict[str, Tensor], place: str = "") -> Any:
    """The inverse, with the weights of the formula."""
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


def record(world: World, launched: Path, data: Path) -> None:
    """Write ``data/upgrade`` from a finished run: only the version that made it does this."""
    run = launched / "runs/tiny/seed-1"
    for path in (run / "checkpoints/checkpoint_last.pt", run / "averaged.pt"):
        text = json.dumps(to_text(load(path), {}), indent=1)
        target = DATA / f"{path.stem}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(place_holders(text, world) + "\n", "utf-8")
    texts = [path for path in (*run.parent.rglob("*"), *data.rglob("*")) if path.is_file()]
    for path in (*texts, launched / "tiny.yaml"):
        if path.suffix in (".pt", ".bin", ".idx", ".log.part") or path.name.startswith("."):
            continue
        target = DATA / path.relative_to(world.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(place_holders(path.read_text("utf-8"), world), "utf-8")


def place_holders(text: str, world: World) -> str:
    from tests.frozen.interpreter import ROOT

    for path, name in ((world.python, "@PYTHON@"), (world.folder, "@HERE@"), (ROOT, "@ROOT@")):
        text = text.replace(str(path), name)
    return text


def restore(world: World, folder: Path) -> None:
    """Make the files of the old version in a folder: data, a finished run, its records."""
    from tests.frozen.interpreter import ROOT

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
    state = from_text(json.loads(filled(DATA / "checkpoint_last.json")), {})
    for path in (run / "checkpoints/checkpoint_last.pt", run / "averaged.pt"):
        text = json.loads(filled(DATA / f"{path.stem}.json"))
        torch.save(state if path.stem != "averaged" else from_text(text, {}), path)
    (folder / "start-row").mkdir()  # the model that the row started from
    shutil.copy(run / "averaged.pt", folder / "start-row/start.pt")
    write_stages(run, data)


def write_stages(run: Path, data: Path) -> None:
    """The record of completed stages as 9b8d63a wrote it: a key of command and inputs."""
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
        text = json.dumps([commands[name], {str(path): sha256(path) for path in inputs}])
        stages[name] = {
            "key": hashlib.sha256(text.encode()).hexdigest(),
            "outputs": {str(path): sha256(path) for path in outputs},
        }
    (run / "stages.json").write_text(json.dumps(stages, indent=2), "utf-8")


def main() -> None:
    """Record once: ``python -m tests.frozen.upgrade`` refuses where there is a record."""
    from tempfile import TemporaryDirectory

    from tests.commands import environment
    from tests.frozen.cases.launches import data, launched
    from tests.frozen.interpreter import serving

    if DATA.exists():
        raise SystemExit(f"error: {DATA}: was recorded by 9b8d63a: it is never recorded again")
    with TemporaryDirectory() as name, serving(Path(name), environment()) as python:
        folder = Path(name)

        def once(part: str, make: Any) -> Path:
            if not (folder / part).exists():
                (folder / part).mkdir()
                make(folder / part)
            return folder / part

        world = World(folder, python, once)
        run = launched(world) / "runs/tiny/seed-1"
        given = ["--config", folder / "launched/tiny.yaml", "--prepared", data(world), "--cpu"]
        given += ["--threads", "1", "--output", folder / "launched/runs", "--max-update", "8"]
        plan = world.start("capsnmt-run", *given, "--slurm", "gpu", "--dry-run", raw=True).stdout
        (run / "job.sh").write_text(plan.partition("<<'JOB'\n")[2].partition("JOB\n")[0], "utf-8")
        record(world, folder / "launched", data(world))
        restore(world, folder / "old")
        source = (data(world) / "raw/test.en").read_text("utf-8")
        old = folder / "old/launched/runs/tiny/seed-1"
        (DATA / "translated.txt").write_text(world.run("capsnmt-translate", old, stdin=source))


if __name__ == "__main__":
    main()

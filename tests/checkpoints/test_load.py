"""Checkpoints: what loads, what is refused, that a file is complete or absent, where to resume."""

import argparse
import errno
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Tuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from capsnmt.checkpoints.load import (
    CheckpointError,
    count_parameters,
    load_checkpoint,
    save_checkpoint,
)
from capsnmt.checkpoints.resume import num_updates, recover
from capsnmt.cli import Stopped
from tests.support import SYSTEMS, build_system, with_every_commit


def fairseq_like() -> Dict[str, Any]:
    """Every kind of entry found in fairseq's checkpoints, small."""
    return {
        "args": None,
        "cfg": {"model": argparse.Namespace(arch="transformer", lr=[0.1]), "task": {"data": "x"}},
        "model": {"w": torch.arange(6.0).view(2, 3), "half": torch.ones(2, dtype=torch.bfloat16)},
        "extra_state": {"bleu": np.array([3, 2, 1, 0]), "val_loss": np.float64(1.5)},
        "last_optimizer_state": {"state": {0: {"step": 1, "exp_avg": torch.zeros(2)}}},
    }


def assert_fairseq_like(state: Dict[str, Any]) -> None:
    expected = fairseq_like()
    assert state.keys() == expected.keys()
    assert state["cfg"] == expected["cfg"]
    assert all(torch.equal(state["model"][k], v) for k, v in expected["model"].items())
    assert state["extra_state"]["bleu"].tolist() == [3, 2, 1, 0]
    assert state["extra_state"]["val_loss"] == 1.5


def refused(path: Path) -> str:
    """The line that refuses a file; it names the file."""
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    (line,) = str(caught.value).splitlines()
    assert str(path) in line
    return line


both_formats = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


@both_formats
def test_loading_returns_what_was_saved(tmp_path: Path, zipped: bool) -> None:
    torch.save(fairseq_like(), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert_fairseq_like(load_checkpoint(tmp_path / "a.pt"))


@pytest.mark.parametrize("package", [b"numpy.core", b"numpy._core"])
def test_checkpoints_of_either_numpy_load(tmp_path: Path, package: bytes) -> None:
    """numpy 2 renamed the package of its constructors."""
    ours, theirs = tmp_path / "ours.pt", tmp_path / "theirs.pt"
    torch.save(fairseq_like(), ours)
    named = b"numpy._core" if int(np.__version__.split(".")[0]) >= 2 else b"numpy.core"
    old, new = (name + b".multiarray\n" for name in (named, package))
    with zipfile.ZipFile(ours) as archive, zipfile.ZipFile(theirs, "w") as written:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("data.pkl"):
                assert old in content
                content = content.replace(old, new)
            written.writestr(name, content)
    assert_fairseq_like(load_checkpoint(theirs))


@both_formats
@pytest.mark.parametrize("function", [os.mkdir, eval], ids=["mkdir", "eval"])
def test_code_in_a_checkpoint_is_refused_by_name_and_never_runs(
    tmp_path: Path, function: Any, zipped: bool
) -> None:
    path, made = tmp_path / "evil.pt", tmp_path / "made"
    argument = str(made) if function is os.mkdir else f"__import__('os').mkdir('{made}')"
    call = type("Call", (), {"__reduce__": lambda _: (function, (argument,))})()
    state = {**fairseq_like(), "extra_state": call}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    assert f"{function.__name__}, which no fairseq checkpoint needs" in refused(path)
    assert not made.exists()


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme", "hello")


def truncated(kept: float, zipped: bool) -> Callable[[Path], Any]:
    def write(path: Path) -> None:
        torch.save(fairseq_like(), path, _use_new_zipfile_serialization=zipped)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * kept)])

    return write


@pytest.mark.parametrize(
    ("write", "words"),
    [
        *(
            (truncated(kept, zipped), "")
            for kept in (0.02, 0.3, 0.9, 0.999)
            for zipped in (True, False)
        ),
        (lambda path: path.write_text("H-0\t-0.1\tthis is no checkpoint\n"), "check the path"),
        (Path.touch, "check the path"),
        (lambda path: path.write_bytes(pickle.dumps({"model": {}}, 2)), "check the path"),
        (archive, "check the path"),
        # whose code torch before 2.6 would run
        (lambda path: torch.jit.script(torch.nn.Linear(1, 1)).save(str(path)), "check the path"),
        (lambda path: torch.save([1, 2], path), "holds no model"),
        (lambda path: torch.save({"model": {1: torch.ones(1)}}, path), "a tensor without a name"),
        (lambda path: torch.save({"model": {}, "cfg": "x"}, path), "holds no usable cfg: not"),
        (Path.mkdir, "check the path"),
        (lambda path: None, "no such checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_one_line(
    write: Callable[[Path], Any], words: str, tmp_path: Path
) -> None:
    write(tmp_path / "a.pt")
    line = refused(tmp_path / "a.pt")
    # a legacy file cut inside the name of a global holds, to the reader, another global
    assert words in line
    assert "check the path" in line or "holds " in line


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.pt.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: .*a\.pt"):
        save_checkpoint({"model": {"w": torch.zeros(1 << 20)}}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


@with_every_commit(1, SYSTEMS)  # names and ties, which no mechanism changes
def test_the_parameters_of_a_checkpoint_are_those_of_its_model(name: str, tmp_path: Path) -> None:
    model = build_system(name, "--share-decoder-input-output-embed")
    tied = model.state_dict()
    copied = {key: value.clone() for key, value in tied.items()}  # as fairseq saves from a GPU
    for state in (tied, copied):
        save_checkpoint({"model": state}, tmp_path / "model.pt")
        assert count_parameters(tmp_path / "model.pt") == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), r"cannot be loaded \("),
        (OSError(errno.EIO, "lost"), r"cannot be loaded \("),
        (RuntimeError("can't allocate memory"), r"cannot be loaded \("),
        (Stopped(15), "stopped by SIGTERM"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(
    error: BaseException, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / "checkpoint_last.pt"
    torch.save({"model": {}, "optimizer_history": [{"num_updates": 3}]}, last)
    monkeypatch.setattr(torch, "load", Mock(side_effect=error))
    for name in ("checkpoint1.pt", "checkpoint_last.pt"):  # nor is another one passed over
        last = last.rename(tmp_path / name)
        with pytest.raises((CheckpointError, Stopped), match=expected):
            recover(tmp_path)
    monkeypatch.undo()
    assert recover(tmp_path)[:3] == (3, 0, None)
    (tmp_path / "checkpoints").symlink_to(tmp_path / "a disk that is away")
    with pytest.raises(CheckpointError, match=r"checkpoint_last.*: no such checkpoint"):
        recover(tmp_path / "checkpoints")


# --- where a stopped training resumes, whatever its folder holds


def saved(updates: int, **changes: Any) -> Dict[str, Any]:
    """A checkpoint of a training; a change to ``None`` leaves a part out."""
    state = {"model": {}, "optimizer_history": [{"num_updates": updates}], **changes}
    state = {"last_optimizer_state": {"state": {}}, "extra_state": {"train_iterator": {}}, **state}
    return {key: value for key, value in state.items() if value is not None}


DIVERGED = {"weight": torch.tensor([1.0, float("nan")])}
# file, or the rest of checkpoint*.pt -> a checkpoint, or its content; the later ones are newer,
# which says nothing
FOLDERS: Dict[str, Tuple[Dict[str, Any], Tuple[int, Tuple[str, ...]]]] = {
    "no checkpoint": ({}, (0, ())),
    "the last": ({"_last": saved(9), "_1_10": saved(10)}, (9, ())),
    "a damaged last": (
        {"_1_30": saved(30), "_1_20": saved(20), "_last": b"PK"},
        (30, ("checkpoint_last.pt was damaged: resuming from checkpoint_1_30.pt at 30",)),
    ),
    "no last, and the newest damaged": (
        {"_1_10": saved(10), "_1_20": b""},
        (10, ("missing: resuming from checkpoint_1_10.pt at 10 updates", "checkpoint_1_20.pt")),
    ),
    "an average": (
        {
            "_2_30": saved(30, last_optimizer_state=None),
            **{"_1_6": saved(6), "_1_4": saved(4), "_last": b"PK"},
        },
        (6, ("checkpoint_1_6.pt at 6", "checkpoint_2_30.pt has no state of the optimizer")),
    ),
    "a crash, of other names": (
        {"1": saved(6), "crash.pt": saved(8), "averaged.pt": saved(9)},
        (6, ("checkpoint1.pt at 6", "crash.pt is none of", "averaged.pt is none of")),
    ),
    "a buffer that fairseq never sets": (
        {"1": saved(6, model={"encoder.embed_positions._float_tensor": DIVERGED["weight"]})},
        (6, ("checkpoint1.pt at 6",)),
    ),
    "one that diverged": (
        {"1": saved(6), "2": saved(8, model=DIVERGED)},
        (6, ("checkpoint1.pt at 6", "checkpoint2.pt: weight has NaN or infinite")),
    ),
    "one that is no training's": (
        {"1": saved(6), "2": saved(8, model={"weight": torch.ones(2, 2).to_sparse()})},
        (6, ("checkpoint1.pt at 6", "checkpoint2.pt: weight is no plain tensor")),
    ),
    "without a place in the data": (
        {"_1_8": saved(8, extra_state={})},
        (0, ("the training starts again", "checkpoint_1_8.pt has no place in the data")),
    ),
    "the end of an epoch": (
        {"1": saved(9), "_1_8": saved(8), "_best": saved(7)},
        (9, ("checkpoint1.pt at 9",)),
    ),
    "the best alone": (
        {"_best": saved(7), ".best_loss_3.1": saved(8)},
        (8, ("checkpoint.best_loss_3.1.pt at 8",)),
    ),
    "another training's": (
        {
            "_2_30": saved(30, args=argparse.Namespace(seed=2)),
            "_1_6": saved(6, args=argparse.Namespace(seed=1)),
        },
        (6, ("checkpoint_1_6.pt at 6", "checkpoint_2_30.pt is of a training with seed 2, not 1")),
    ),
    "none that can be read": ({"_last": b"PK"}, (0, ("the training starts again",))),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_training_resumes_from_the_most_updates_that_it_can(name: str, tmp_path: Path) -> None:
    files, (updates, words) = FOLDERS[name]
    for place, (file, content) in enumerate(files.items()):
        path = tmp_path / (file if file.endswith(".pt") else f"checkpoint{file}.pt")
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        os.utime(path, (place, place))
    resumed = recover(tmp_path, {"seed": 1, "source_lang": None})
    said = resumed.said
    assert resumed.updates == updates
    assert (said is None) == (not words)
    assert all(word in str(said) for word in words), said
    if updates:
        assert num_updates(tmp_path / "checkpoint_last.pt") == updates
    damaged = isinstance(files.get("_last"), bytes)
    assert (tmp_path / "checkpoint_last.pt.damaged").exists() == damaged

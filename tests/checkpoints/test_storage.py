"""Checkpoints: what loads, what is refused, and that writing leaves a complete file or none."""

from __future__ import annotations

import argparse
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest
import torch

from capsnmt.checkpoints import load as storage
from capsnmt.checkpoints.load import (
    CheckpointError,
    load_checkpoint,
    save_checkpoint,
)


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


def rewrite_pickle(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of the pickle inside a checkpoint."""
    with zipfile.ZipFile(path) as archive:
        records = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records:
            archive.writestr(
                name, content.replace(old, new) if name.endswith("data.pkl") else content
            )


class Touch:
    """Pickled, it is a call that makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Evaluate:
    def __reduce__(self):
        return eval, ("1 + 1",)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_loading_returns_what_was_saved(tmp_path: Path, zipped: bool) -> None:
    torch.save(fairseq_like(), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    assert_fairseq_like(load_checkpoint(tmp_path / "a.pt"))


@pytest.mark.parametrize("package", [b"numpy.core", b"numpy._core"])
def test_checkpoints_of_either_numpy_load(tmp_path: Path, package: bytes) -> None:
    path = tmp_path / "a.pt"
    torch.save(fairseq_like(), path)
    other = b"numpy._core" if int(np.__version__.split(".")[0]) >= 2 else b"numpy.core"
    rewrite_pickle(path, other + b".multiarray\n", package + b".multiarray\n")
    with zipfile.ZipFile(path) as archive:
        assert package + b".multiarray\n" in archive.read("a/data.pkl")
    assert_fairseq_like(load_checkpoint(path))


def test_every_checkpoint_that_fairseq_trained_loads(trained: Path) -> None:
    paths = sorted((trained / "checkpoints").glob("*.pt"))
    assert len(paths) >= 6
    for path in paths:
        state = load_checkpoint(path)
        assert isinstance(state["cfg"]["model"], argparse.Namespace)
        assert "decoder.embed_tokens.weight" in state["model"]


def test_torch_load_as_fairseq_calls_it_reads_a_trained_checkpoint(trained: Path) -> None:
    path = trained / "checkpoints" / "checkpoint_last.pt"
    # no weights_only argument: it is the default of torch >= 2.6 that must be satisfied
    assert "model" in torch.load(path, map_location="cpu")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_code_in_a_checkpoint_is_refused_by_name_and_never_runs(
    tmp_path: Path, zipped: bool
) -> None:
    path, made = tmp_path / "evil.pt", tmp_path / "made"
    state = {**fairseq_like(), "extra_state": Touch(made)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"posix\.mkdir"):
        load_checkpoint(path)
    assert not made.exists()


def test_builtins_are_refused(tmp_path: Path) -> None:
    torch.save({**fairseq_like(), "extra_state": Evaluate()}, tmp_path / "evil.pt")
    with pytest.raises(CheckpointError, match="eval"):
        load_checkpoint(tmp_path / "evil.pt")


def test_the_error_is_one_line_and_a_value_error(tmp_path: Path) -> None:
    torch.save({"model": Evaluate()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="evil") as caught:
        load_checkpoint(tmp_path / "evil.pt")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("kept", [0.02, 0.3, 0.9, 0.999])
def test_a_truncated_checkpoint_is_reported_as_such(
    tmp_path: Path, kept: float, zipped: bool
) -> None:
    path = tmp_path / "a.pt"
    torch.save(fairseq_like(), path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    # a legacy file cut inside the name of a global holds, to the reader, another global
    complaint = r"a\.pt is truncated" if zipped else r"a\.pt (is truncated|holds torch\.)"
    with pytest.raises(CheckpointError, match=complaint) as caught:
        load_checkpoint(path)
    assert len(str(caught.value).splitlines()) == 1


def not_checkpoints(folder: Path) -> Dict[str, Path]:
    """Files a user might name by mistake."""
    files = {name: folder / name for name in ("text", "empty", "pickle", "zip", "list", "script")}
    files["text"].write_text("H-0\t-0.1\tthis is no checkpoint\n")
    files["empty"].touch()
    files["pickle"].write_bytes(pickle.dumps({"model": {}}))
    with zipfile.ZipFile(files["zip"], "w") as archive:
        archive.writestr("readme", "hello")
    torch.save([1, 2], files["list"])
    torch.jit.script(torch.nn.Linear(1, 1)).save(str(files["script"]))
    return {**files, "folder": folder, "missing": folder / "missing"}


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("text", "not a checkpoint"),
        ("empty", "is empty"),
        ("pickle", "not a checkpoint"),
        ("zip", "not one written by"),
        ("list", "holds no model"),
        ("script", "not one written by"),
        ("folder", "is a folder"),
        ("missing", "no such checkpoint"),
    ],
)
def test_a_file_that_is_not_a_checkpoint_is_one_line(
    tmp_path: Path, kind: str, complaint: str
) -> None:
    path = not_checkpoints(tmp_path)[kind]
    with pytest.raises(CheckpointError, match=complaint) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_saved_checkpoint_is_the_only_file(tmp_path: Path) -> None:
    save_checkpoint(fairseq_like(), tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
    assert_fairseq_like(load_checkpoint(tmp_path / "a.pt"))


def test_failing_to_save_keeps_the_older_checkpoint_and_leaves_no_remains(tmp_path: Path) -> None:
    save_checkpoint(fairseq_like(), tmp_path / "a.pt")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_checkpoint({"model": {}, "cannot be pickled": lambda: None}, tmp_path / "a.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
    assert_fairseq_like(load_checkpoint(tmp_path / "a.pt"))


def test_a_name_appears_only_after_the_content_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}
    replace = os.replace

    def watch(source: Any, target: Any) -> None:
        seen["target existed"] = Path(target).exists()
        seen["content"] = torch.load(source, map_location="cpu")["model"]["w"].tolist()
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    save_checkpoint({"model": {"w": torch.ones(2)}}, tmp_path / "a.pt")
    assert seen == {"target existed": False, "content": [1.0, 1.0]}


@pytest.mark.parametrize("megabytes", [0, 4])
def test_a_full_disk_is_one_line_and_keeps_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    save_checkpoint(fairseq_like(), tmp_path / "a.pt")
    write = open
    monkeypatch.setattr(storage, "open", lambda path, mode: write("/dev/full", mode), raising=False)
    with pytest.raises(CheckpointError, match=r"a\.pt cannot be written: No space left") as error:
        save_checkpoint({"model": {"w": torch.zeros(megabytes << 18)}}, tmp_path / "a.pt")
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
    assert_fairseq_like(load_checkpoint(tmp_path / "a.pt"))


def test_saving_into_a_missing_folder_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing/a\.pt cannot be written"):
        save_checkpoint(fairseq_like(), tmp_path / "missing" / "a.pt")

"""Training restarts after a save that was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from capsnmt.checkpoints.resume import LAST, num_updates, recover


def save(folder: Path, name: str, updates: int) -> Path:
    path = folder / name
    state = {
        "model": {"weight": torch.full((256,), float(updates))},
        "optimizer_history": [{"num_updates": updates}],
    }
    torch.save(state, path)
    # Files written within one tick of the clock would have the same time.
    os.utime(path, ns=(updates * 10**9, updates * 10**9))
    return path


def truncate(path: Path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_a_truncated_last_checkpoint_is_replaced_by_the_newest_complete_one(tmp_path: Path, keep):
    save(tmp_path, "checkpoint_1_100.pt", 100)
    save(tmp_path, "checkpoint_1_200.pt", 200)
    truncate(save(tmp_path, "checkpoint_best.pt", 250), 0.5)
    truncate(save(tmp_path, LAST, 300), keep)
    updates, message = recover(tmp_path)
    assert updates == num_updates(tmp_path / LAST) == 200
    assert message is not None
    assert "checkpoint_1_200.pt at 200 updates" in message
    assert "checkpoint_best.pt, checkpoint_last.pt damaged" in message
    assert (tmp_path / "checkpoint_last.pt.damaged").exists()


def test_a_flipped_byte_in_a_file_of_full_length_is_found(tmp_path: Path):
    save(tmp_path, "checkpoint_1_100.pt", 100)
    content = bytearray(save(tmp_path, LAST, 200).read_bytes())
    weight = content.index(torch.full((8,), 200.0).numpy().tobytes())
    content[weight + 5] ^= 0xFF
    (tmp_path / LAST).write_bytes(content)
    assert recover(tmp_path)[0] == num_updates(tmp_path / LAST) == 100


def test_complete_checkpoints_are_not_changed(tmp_path: Path):
    save(tmp_path, "checkpoint_1_100.pt", 100)
    last = save(tmp_path, LAST, 200)
    before = last.stat().st_mtime_ns
    assert recover(tmp_path) == (200, None)
    assert last.stat().st_mtime_ns == before
    assert num_updates(last) == 200


def test_a_missing_last_checkpoint_is_restored(tmp_path: Path):
    save(tmp_path, "checkpoint_1_100.pt", 100)
    updates, message = recover(tmp_path)
    assert message is not None
    assert "checkpoint_last.pt is missing" in message
    assert updates == num_updates(tmp_path / LAST) == 100


def test_nothing_to_recover_starts_from_the_beginning(tmp_path: Path):
    assert recover(tmp_path) == (0, None)
    assert recover(tmp_path / "absent") == (0, None)
    truncate(save(tmp_path, LAST, 100), 0.5)
    updates, message = recover(tmp_path)
    assert message is not None
    assert "training starts again" in message
    assert updates == 0


def test_half_saved_temporary_files_are_removed(tmp_path: Path):
    for name in ("checkpoint_1_100.pt.tmp", "checkpoint_last.pt.part"):
        (tmp_path / name).write_bytes(b"half")
    recover(tmp_path)
    assert list(tmp_path.iterdir()) == []

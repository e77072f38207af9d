"""Where a stopped training resumes, whatever its folder holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import pytest
import torch

from capsnmt.checkpoints.resume import num_updates, recover

# file -> its updates, or its content; the later ones are newer
FOLDERS: Dict[str, Tuple[Dict[str, Any], Tuple[int, Optional[str]]]] = {
    "no checkpoint": ({}, (0, None)),
    "the last": ({"checkpoint_last.pt": 9, "checkpoint_1_10.pt": 10}, (9, None)),
    "a damaged last": (
        {"checkpoint_1_30.pt": 30, "checkpoint_1_20.pt": 20, "checkpoint_last.pt": b"PK"},
        (20, "checkpoint_last.pt is missing or damaged: resuming from checkpoint_1_20.pt at 20"),
    ),
    "no last, and the newest damaged": (
        {"checkpoint_1_10.pt": 10, "other.pt": None, "checkpoint_1_20.pt": b""},
        (10, "resuming from checkpoint_1_10.pt at 10 updates"),
    ),
    "none that can be read": ({"checkpoint_last.pt": b"PK"}, (0, "the training starts again")),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_newest_checkpoint_that_can_be_read_is_the_last(name: str, tmp_path: Path) -> None:
    files, (updates, words) = FOLDERS[name]
    for place, (file, content) in enumerate(files.items()):
        path = tmp_path / file
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            history = [] if content is None else [{"num_updates": content}]
            torch.save({"model": {}, "optimizer_history": history}, path)
        os.utime(path, (place, place))
    found, said = recover(tmp_path)
    assert found == updates
    assert said is None if words is None else words in str(said)
    if updates:
        assert num_updates(tmp_path / "checkpoint_last.pt") == updates
    damaged = isinstance(files.get("checkpoint_last.pt"), bytes)
    assert (tmp_path / "checkpoint_last.pt.damaged").exists() == damaged

"""Where a stopped training resumes: which of its checkpoints are whole."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import List, Optional

from capsnmt.checkpoints.storage import CheckpointError, load_checkpoint
from capsnmt.files import temporary_path

LAST = "checkpoint_last.pt"
# A file of this name in the folder asks the training to stop. It gets there whatever runs between
# the training and who asks: torchrun gives its workers 30 seconds after a signal, srun none.
STOP_FILE = "stop"


def num_updates(path: Path) -> int:
    """The updates of the training that saved a checkpoint.

    Raises:
        CheckpointError: the file is missing, damaged, or was not saved by fairseq's trainer.
    """
    state = load_checkpoint(path)
    try:
        return int(state["optimizer_history"][-1]["num_updates"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise CheckpointError(
            f"{path} does not say its updates: not saved by fairseq-train"
        ) from None


def updates_done(folder: Path) -> int:
    """The updates of the checkpoint that training would resume from; 0 when there is none."""
    last = folder / LAST
    return num_updates(last) if last.exists() else 0


def recover(folder: Path) -> Optional[str]:
    """Make ``checkpoint_last.pt`` a whole checkpoint; a sentence to show if that took anything.

    fairseq saves to a temporary file and renames it, but then *copies* it to
    ``checkpoint_last.pt`` and ``checkpoint_best.pt``: a kill in between leaves half a copy, which
    fairseq refuses to load and would never replace. Damaged files are set aside, not deleted.
    """
    for leftover in [*folder.glob("*.pt.tmp"), *folder.glob(temporary_path(Path("*.pt")).name)]:
        leftover.unlink()
    # A zip archive ends with its directory, so half a copy is none; the whole content is only
    # checked of the file that is used.
    damaged = [path for path in folder.glob("*.pt") if not zipfile.is_zipfile(path)]
    last = folder / LAST
    candidates = [path for path in folder.glob("*.pt") if path not in damaged]
    # The newest first, and checkpoint_last.pt before all.
    candidates.sort(key=lambda path: (path != last, -path.stat().st_mtime_ns))
    source = updates = None
    for path in candidates:
        updates = _updates_if_whole(path)
        if updates is not None:
            source = path
            break
        damaged.append(path)
    for path in damaged:
        os.replace(path, path.with_name(path.name + ".damaged"))
    cause = f"{_names(damaged)} damaged and set aside" if damaged else f"{LAST} is missing"
    if source is None:
        return f"{cause}, no whole checkpoint is left: training starts again" if damaged else None
    if source == last:
        return cause if damaged else None
    shutil.copyfile(source, temporary_path(last))
    os.replace(temporary_path(last), last)
    return f"{cause}: resuming from {source.name} at {updates:,} updates"


def _updates_if_whole(path: Path) -> Optional[int]:
    try:
        # torch does not look at the checksums that its archives have.
        with zipfile.ZipFile(path) as archive:
            return num_updates(path) if archive.testzip() is None else None
    except (CheckpointError, zipfile.BadZipFile):
        return None


def _names(paths: List[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths))

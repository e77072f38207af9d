"""Where a stopped training resumes: which of its checkpoints are complete."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import List, Optional, Tuple

from capsnmt.checkpoints.load import CheckpointError, has_container, load_checkpoint
from capsnmt.files import temporary_path

LAST = "checkpoint_last.pt"
# A file of this name in the folder asks the training to stop. Unlike a signal it reaches the
# training through torchrun, which kills its workers after 30 s, and srun, which does not wait.
STOP_FILE = "stop"


def num_updates(path: Path) -> int:
    """Return how many updates the training had done when it saved a checkpoint.

    Raises:
        CheckpointError: the file is missing, damaged, or was not saved by fairseq's trainer.
    """
    state = load_checkpoint(path)
    try:
        return int(state["optimizer_history"][-1]["num_updates"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise CheckpointError(
            f"{path} does not hold its number of updates: not saved by fairseq-train"
        ) from None


def recover(folder: Path) -> Tuple[int, Optional[str]]:
    """Make ``checkpoint_last.pt`` a complete checkpoint.

    fairseq saves to a temporary file and renames it, but then *copies* it to
    ``checkpoint_last.pt`` and ``checkpoint_best.pt``. A kill during the copy leaves a truncated
    file, which fairseq refuses to load and never replaces. Damaged files are renamed, not deleted.

    Args:
        folder: ``--save-dir`` of the training.

    Returns:
        The updates of that checkpoint, 0 without one; and a sentence for the user if something was
        repaired or lost, else ``None``.
    """
    for leftover in [*folder.glob("*.pt.tmp"), *folder.glob(temporary_path(Path("*.pt")).name)]:
        leftover.unlink()
    # The content is checked only of the file that is used.
    damaged = [path for path in folder.glob("*.pt") if not has_container(path)]
    last = folder / LAST
    candidates = [path for path in folder.glob("*.pt") if path not in damaged]
    # checkpoint_last.pt first, then the newest.
    candidates.sort(key=lambda path: (path != last, -path.stat().st_mtime_ns))
    source, done = None, 0
    for path in candidates:
        updates = _updates_if_complete(path)
        if updates is not None:
            source, done = path, updates
            break
        damaged.append(path)
    for path in damaged:
        os.replace(path, path.with_name(path.name + ".damaged"))
    cause = f"{_names(damaged)} damaged and renamed" if damaged else f"{LAST} is missing"
    if source is None:
        lost = f"{cause}, no complete checkpoint is left: training starts again"
        return 0, lost if damaged else None
    if source == last:
        return done, cause if damaged else None
    shutil.copyfile(source, temporary_path(last))
    os.replace(temporary_path(last), last)
    return done, f"{cause}: resuming from {source.name} at {done:,} updates"


def _updates_if_complete(path: Path) -> Optional[int]:
    try:
        if zipfile.is_zipfile(path):
            # torch does not verify the checksums of its archives
            with zipfile.ZipFile(path) as archive:
                if archive.testzip() is not None:
                    return None
        return num_updates(path)
    except (CheckpointError, zipfile.BadZipFile):
        return None


def _names(paths: List[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths))

"""Where a stopped training resumes: from its last checkpoint that can be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional, Tuple

from capsnmt.checkpoints.load import CheckpointError, DamagedError, load_checkpoint
from capsnmt.files import replacing

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file, in --save-dir
# A file of this name in the folder asks the training to stop. Unlike a signal it reaches the
# training through torchrun, which kills its workers after 30 s, and srun, which does not wait.
STOP_FILE = "stop"


def num_updates(path: Path) -> int:
    """Return how many updates the training had done when it saved a checkpoint."""
    state = load_checkpoint(path)
    try:
        return int(state["optimizer_history"][-1]["num_updates"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise CheckpointError(
            f"{path} does not hold its number of updates: not saved by fairseq-train"
        ) from None


def recover(folder: Path) -> Tuple[int, Optional[str]]:
    """Replace a ``checkpoint_last.pt`` that cannot be read by the newest checkpoint that can.

    fairseq saves to a temporary file and renames it, but then *copies* it to
    ``checkpoint_last.pt``. A kill during the copy leaves a truncated file, which fairseq refuses to
    load. It is renamed, not deleted. Return the updates of ``checkpoint_last.pt``, 0 without one,
    and a sentence for the user if it was replaced or lost.
    """
    last = folder / LAST
    found = [(path == last, path.stat().st_mtime_ns, path) for path in folder.glob("*.pt")]
    for is_last, _, path in sorted(found, reverse=True):
        try:
            updates = num_updates(path)
        except DamagedError:
            if is_last:
                os.replace(path, path.with_name(f"{LAST}.damaged"))
            continue
        except CheckpointError:
            if is_last:  # it may be whole, and is not read now: no reason to train again
                raise
            continue
        if is_last:
            return updates, None
        with replacing(last) as temporary:
            shutil.copyfile(path, temporary)
        resuming = f"resuming from {path.name} at {updates:,} updates"
        return updates, f"{LAST} is missing or damaged: {resuming}"
    return 0, "no checkpoint can be read: the training starts again" if found else None

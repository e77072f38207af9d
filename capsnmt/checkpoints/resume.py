"""Where a stopped training resumes: from its last checkpoint, or the best that replaces it."""

import math
import os
import re
import shutil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from capsnmt.checkpoints.load import (
    CheckpointError,
    DamagedError,
    UnreadError,
    check_finite,
    in_group,
    load_checkpoint,
    settings_of,
)
from capsnmt.files import replacing

LAST = "checkpoint_last.pt"  # fairseq's default of --restore-file, in --save-dir
# A file of this name in the folder asks the training to stop. Unlike a signal it reaches the
# training through torchrun, which kills its workers after 30 s, and srun, which does not wait.
STOP_FILE = "stop"
# what fairseq's training saves of whole and broken epochs, and of the best validations
SAVED = re.compile(r"checkpoint(?P<epoch>\d+|_(?P<of>\d+)_(?P<updates>\d+)|_best|\.best_.+)\.pt")
UNKNOWN = (-1, 0.0)


def num_updates(path: Path) -> int:
    """Return how many updates the training had done when it saved a checkpoint."""
    return updates_of(load_checkpoint(path), path)


def updates_of(state: Dict[str, Any], path: Path) -> int:
    """Return how many updates a loaded checkpoint had."""
    try:
        return int(state["optimizer_history"][-1]["num_updates"])
    except (LookupError, TypeError, ValueError, OverflowError):
        raise CheckpointError(
            f"{path} does not hold its number of updates: not saved by fairseq-train"
        ) from None


def place_of(state: Dict[str, Any], path: Path) -> Tuple[int, int]:
    """Return how many updates a loaded checkpoint had, and how many epochs had begun."""
    place = in_group((state.get("extra_state") or {}).get("train_iterator"))
    next_one = not place.get("iterations_in_epoch")  # which has not begun
    return updates_of(state, path), max(0, int(place.get("epoch") or 0) - next_one)


class Resumption(NamedTuple):
    """Where a training resumes: in ``checkpoint_last.pt``."""

    updates: int = 0  # 0 without a checkpoint
    epochs: int = 0
    said: Optional[str] = None  # to the user, if it was replaced or lost
    lack: str = ""  # why it is a model alone, which a training cannot go on from


def recover(folder: Path, training: Mapping[str, Any] = MappingProxyType({})) -> Resumption:
    """Replace a ``checkpoint_last.pt`` that cannot be read by the one with the most updates.

    fairseq saves to a temporary file and renames it, but then *copies* it to
    ``checkpoint_last.pt``. A kill during the copy leaves a truncated file, which fairseq refuses to
    load. It is renamed, not deleted. ``training`` has settings that tell one training from another,
    as fairseq names them: a ``CheckpointError`` says that ``checkpoint_last.pt`` has others.

    **D**: only what fairseq's training saves by its names takes its place, and only with all that a
    training resumes from. An average, or the ``crash.pt`` of a training that diverged, does not.
    The times of files say nothing: they change with a copy.
    """
    last = folder / LAST
    try:
        state = load_checkpoint(last)
        check_training(state, last, training)
        return Resumption(*place_of(state, last), lack=lack_of(state))
    except DamagedError:
        os.replace(last, last.with_name(f"{LAST}.damaged"))
        why = f"{LAST} was damaged"
    except CheckpointError:
        # it may be whole, and is not read now, as on a disk that is away: no reason to train again
        if last.exists() or (folder.is_symlink() and not folder.exists()):
            raise
        why = f"{LAST} is missing"
    others = sorted(folder.glob("*.pt"), key=_place, reverse=True)
    most, best, skipped = (0, 0), None, []
    for path in others:
        try:
            if not SAVED.fullmatch(path.name):
                raise CheckpointError(f"{path} is none of fairseq's names of checkpoints")
            if best is None or _place(path) == UNKNOWN:
                found = resumable(path, training)
                if found > most:
                    most, best = found, path
        except UnreadError:  # it may be the best
            raise
        except CheckpointError as error:
            skipped.append(str(error).replace(f"{folder}/", "").partition(";")[0])
    more = f" (not from: {', '.join(skipped)})" if skipped else ""
    if best is None:
        found_any = skipped or "damaged" in why
        starts = f"{why}, and nothing else can be resumed from: the training starts again{more}"
        return Resumption(said=starts if found_any else None)
    with replacing(last) as temporary:
        shutil.copyfile(best, temporary)
    return Resumption(*most, f"{why}: resuming from {best.name} at {most[0]:,} updates{more}")


def _place(path: Path) -> Tuple[int, float]:
    """Return epoch and updates by the name of a checkpoint; that of an epoch is its last."""
    name = SAVED.fullmatch(path.name)
    if name is None or not (name["epoch"][0].isdigit() or name["of"]):
        return UNKNOWN
    return int(name["of"] or name["epoch"]), float(name["updates"] or math.inf)


def resumable(path: Path, training: Mapping[str, Any]) -> Tuple[int, int]:
    """Return the place of a checkpoint of a training, if it has all that one resumes from."""
    state = load_checkpoint(path)
    if lack := lack_of(state):
        raise CheckpointError(f"{path} has {lack}; it is a model alone")
    check_training(state, path, training)
    check_finite(state["model"], path)
    return place_of(state, path)


def lack_of(state: Mapping[str, Any]) -> str:
    """Return what a loaded checkpoint lacks of all that a training resumes from, in words."""
    if not state.get("last_optimizer_state"):
        return "no state of the optimizer"
    here = "train_iterator" in (state.get("extra_state") or {})
    return "" if here else "no place in the data"


def check_training(state: Dict[str, Any], path: Path, training: Mapping[str, Any]) -> None:
    """Raise if a loaded checkpoint is of another training than that with these settings."""
    settings = settings_of(state)
    for key in (key for key in training if settings.get(key) not in (None, training[key])):
        raise CheckpointError(
            f"{path} is of a training with {key} {settings[key]}, not {training[key]}; restore "
            f"that of this run, or delete it"
        )

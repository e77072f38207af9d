"""The settings that make two runs different trainings."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from capsnmt.runs.records import Description

# Flags of fairseq-train that may change when a training resumes: they change no update.
FREE_FLAGS = frozenset(
    {
        "keep-best-checkpoints",
        "keep-interval-updates",
        "keep-last-epochs",
        "log-interval",
        "max-epoch",
        "max-update",
        "no-epoch-checkpoints",
        "num-workers",
        "save-interval",
        "save-interval-updates",
        "validate-interval",
        "validate-interval-updates",
    }
)


def differences(before: Description, now: Description) -> Iterator[Tuple[str, Any, Any]]:
    """Yield key, old value and new value of each setting that makes two trainings different.

    The device is not compared: the update is the same on every device.
    """
    old, new = _training(before), _training(now)
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _training(description: Description) -> Dict[str, Any]:
    settings = description.settings
    batch = settings.get("batch") or {}
    updates = {f"batch.{key}": value for key, value in batch.items() if key.endswith("-per-update")}
    flags = {
        f"train.{name}": value
        for name, value in description.train.items()
        if name not in FREE_FLAGS
    }
    return {
        "arch": settings.get("arch"),
        "data": dict(description.vocabulary),
        "init-from": settings.get("init-from"),
        "seed": description.seed,
        "task": description.task,
        **updates,
        **flags,
    }

"""What a run was made with: recorded in its folder, compared when it goes on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import torch

import capsnmt
from capsnmt.experiment.commands import Run

# Flags that may differ when a training goes on, because they change no update.
FREE_FLAGS = frozenset(
    {
        "keep-best-checkpoints",
        "keep-interval-updates",
        "keep-last-epochs",
        "log-interval",
        "max-update",
        "no-epoch-checkpoints",
        "num-workers",
        "save-interval",
        "save-interval-updates",
        "validate-interval",
        "validate-interval-updates",
    }
)

# Keys of the description that tell of the machine and not of the experiment.
TRAINED_ON = ("device", "device-name", "threads", "versions")


def describe(run: Run, vocabulary: Mapping[str, str]) -> Dict[str, Any]:
    """The content of ``config.json``: the resolved configuration and all it ran with.

    Args:
        run: the run.
        vocabulary: checksum of each dictionary.
    """
    return {
        "row": run.experiment.row,
        "seed": run.seed,
        "device": str(run.device),
        "device-name": torch.cuda.get_device_name(0)
        if run.device.gpus
        else f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": run.device.threads,
        "baseline": run.baseline,
        "data": str(run.data.folder),
        "vocabulary": dict(vocabulary),
        "settings": run.experiment.settings,
        "command": sys.argv,
        "versions": versions(),
    }


def versions() -> Dict[str, str]:
    """The versions that decide what a run computes."""
    fairseq = [
        f"{name} {importlib.metadata.version(name)}"
        for name in ("ve-fairseq", "fairseq")
        if _is_installed(name)
    ]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": ", ".join(fairseq) or "unknown",
        "capsnmt": capsnmt.__version__,
    }


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Tuple[str, Any, Any]]:
    """Key, old and new value of all that makes two descriptions different trainings.

    The device is not among it: the update is the same on any.
    """
    old, new = _training(before), _training(now)
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _training(description: Mapping[str, Any]) -> Dict[str, Any]:
    settings = description["settings"]
    flags = {
        f"train.{name}": value
        for name, value in settings["train"].items()
        if name not in FREE_FLAGS
    }
    return {
        "arch": settings["arch"],
        "batch.tokens-per-update": settings["batch"]["tokens-per-update"],
        "data": description["vocabulary"],
        "seed": description["seed"],
        **flags,
    }


def _is_installed(name: str) -> bool:
    installed: List[importlib.metadata.Distribution] = list(
        importlib.metadata.distributions(name=name)
    )
    return bool(installed)

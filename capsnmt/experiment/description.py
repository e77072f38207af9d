"""The description of a run that its folder records."""

from __future__ import annotations

import os
import platform
import sys
from typing import Dict, Mapping

import torch

import capsnmt
from capsnmt.experiment.run import Run
from capsnmt.runs.records import Description
from capsnmt.versions import installed_version


def describe(run: Run, vocabulary: Mapping[str, str]) -> Description:
    """Describe a run: its resolved configuration, device, command and versions.

    Args:
        run: the run.
        vocabulary: checksums that identify the training data.
    """
    return Description(
        row=run.experiment.row,
        seed=run.seed,
        settings=run.experiment.settings,
        task=run.task,
        data=str(run.data_folder),
        vocabulary=dict(vocabulary),
        baseline=run.baseline,
        sweep=run.experiment.point,
        device=str(run.device),
        device_name=torch.cuda.get_device_name(0)
        if run.device.gpus
        else f"{platform.machine()}, {os.cpu_count()} cores",
        threads=run.device.threads,
        command=sys.argv,
        versions=versions(),
    )


def versions() -> Dict[str, str]:
    """Return the versions that determine what a run computes."""
    installed = {name: installed_version(name) for name in ("ve-fairseq", "fairseq")}
    fairseq = [f"{name} {version}" for name, version in installed.items() if version]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": ", ".join(fairseq) or "unknown",
        "capsnmt": capsnmt.__version__,
    }

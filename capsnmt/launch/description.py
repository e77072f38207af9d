"""The description of a run that its folder records."""

from __future__ import annotations

import os
import platform
from typing import Dict, Mapping, Optional, Sequence

import torch

from capsnmt.checkpoints.resume import num_updates
from capsnmt.checksums import Checksums
from capsnmt.cli import ConfigurationError
from capsnmt.files import installed_version, own_version
from capsnmt.launch.run import Run
from capsnmt.machine import processor
from capsnmt.runs.initial_model import InitialModel
from capsnmt.runs.records import Description


def describe(
    run: Run, argv: Sequence[str], vocabulary: Mapping[str, str], checksums: Checksums
) -> Description:
    """Describe a run: its resolved configuration, initial model, device, command and versions.

    Args:
        run: the run.
        argv: the arguments of the launcher.
        vocabulary: checksums that identify the training data.
        checksums: the cache of checksums of the run.

    Raises:
        ConfigurationError: the initial model is missing, or was trained on other data.
    """
    return Description(
        row=run.experiment.row,
        seed=run.seed,
        settings=run.experiment.settings,
        task=run.task,
        data=os.path.abspath(run.data_folder),
        vocabulary=dict(vocabulary),
        baseline=run.baseline,
        sweep=run.experiment.point,
        initial=initial_model(run, vocabulary, checksums),
        device=str(run.device),
        device_name=torch.cuda.get_device_name(0)
        if run.device.gpus
        else f"{processor()}, {os.cpu_count()} cores",
        threads=run.device.threads,
        command=["capsnmt-run", *argv],
        versions=versions(),
    )


def initial_model(
    run: Run, vocabulary: Mapping[str, str], checksums: Checksums
) -> Optional[InitialModel]:
    """Return the record of the model that a run starts from, if there is one.

    Raises:
        ConfigurationError: as :func:`describe`.
    """
    initial = run.initial
    if initial is None:
        return None
    trained = initial.folder.read_description()
    if dict(trained.vocabulary) != dict(vocabulary):
        raise ConfigurationError(
            f"{initial.folder}: was trained on other data than {run.data_folder}, so that "
            f"{run.experiment.row} cannot start from it: give another --output"
        )
    earlier = 0 if trained.initial is None else trained.initial.updates
    return InitialModel(
        row=initial.experiment.row,
        checkpoint=str(initial.model),
        checksum=checksums.of(initial.model),
        updates=num_updates(initial.model) + earlier,
    )


def versions() -> Dict[str, str]:
    """Return the versions that determine what a run computes."""
    installed = {name: installed_version(name) for name in ("ve-fairseq", "fairseq")}
    fairseq = [f"{name} {version}" for name, version in installed.items() if version]
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": ", ".join(fairseq) or "unknown",
        "capsnmt": own_version(),
    }

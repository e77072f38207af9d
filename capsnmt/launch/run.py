"""One run: a row of a table with one seed. Its stages depend on its kind.

:class:`~capsnmt.launch.translation.TranslationRun` and
:class:`~capsnmt.launch.classification.ClassificationRun` describe their stages. Both train by
the command that is built here. Nothing in these modules runs anything.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import capsnmt
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import check_file_name
from capsnmt.launch import flags
from capsnmt.launch.config import Experiment
from capsnmt.launch.devices import Batch, Device, train_prefix
from capsnmt.launch.precision import precision_flags
from capsnmt.launch.stage import Stage
from capsnmt.runs.folder import RunFolder

USER_DIR = Path(capsnmt.__file__).parent


@dataclass(frozen=True)
class RunData(PreparedData):
    """The folder of the prepared data, and where its sources come from.

    Attributes:
        local: the raw data, if the user has it.
        offline: whether the network must not be used.
        mirrors: addresses to try first.
    """

    local: Optional[Path] = None
    offline: bool = False
    mirrors: Tuple[str, ...] = ()

    @property
    def stages(self) -> Path:
        """The record of the completed preparation."""
        return self.folder / ".stages.json"

    @property
    def lock(self) -> Path:
        """The lock of a preparation, which all runs on the data share."""
        return self.folder.with_name(self.folder.name + ".lock")


@dataclass(frozen=True)
class Run(ABC):
    """One training and what follows it.

    Attributes:
        experiment: the configuration.
        data: the prepared data.
        output: the folder of all rows.
        device: what to train on.
        seed: the seed of the training.
        baseline: the row to test against.
        task: the probing task, if it is one.
        initial: the run whose model the training starts from.
        file: the configuration, if only ``init-from`` of another row names it.
    """

    experiment: Experiment
    data: RunData
    output: Path
    device: Device
    seed: int
    baseline: Optional[str] = None
    task: Optional[str] = None
    initial: Optional[Run] = None
    file: Optional[Path] = None

    @property
    def title(self) -> str:
        """The run in words."""
        parts = [self.experiment.row, *([self.task] if self.task else []), f"seed {self.seed}"]
        return ", ".join(parts)

    @property
    def folder(self) -> RunFolder:
        """The folder of this run."""
        return self.of(self.experiment.row)

    def of(self, row: str) -> RunFolder:
        """The folder of another row with the same task and seed."""
        parts = [row, *([self.task] if self.task else []), f"seed-{self.seed}"]
        return RunFolder(self.output.joinpath(*parts))

    @property
    def total_updates(self) -> Optional[int]:
        """The updates of the complete training; ``None`` if epochs or patience end it."""
        return self.experiment["train.max-update"]

    @property
    def data_folder(self) -> Path:
        """The folder of the data that the run reads."""
        return self.data.folder

    @property
    @abstractmethod
    def model(self) -> Path:
        """The checkpoint that is evaluated."""

    @property
    @abstractmethod
    def batch(self) -> Batch:
        """The update of the configuration, split over the run's devices."""

    @property
    def warning(self) -> Optional[str]:
        """A warning about the batch for the user, if there is any."""
        return None

    @property
    @abstractmethod
    def results(self) -> Sequence[Path]:
        """The files with the scores of the run."""

    @abstractmethod
    def prepare(self) -> Optional[Stage]:
        """The stage that prepares the data; ``None`` if the user has done it."""

    @abstractmethod
    def data_steps(self) -> List[str]:
        """What the preparation does, in short lines for the plan."""

    @abstractmethod
    def common_arguments(self) -> List[str]:
        """The arguments of fairseq's commands that describe data and task."""

    @abstractmethod
    def evaluation(self) -> List[Stage]:
        """The stages after the training."""

    @abstractmethod
    def check_settings(self) -> None:
        """Raise unless the configuration is complete and fairseq understands its flags.

        Raises:
            ConfigurationError: naming the flag and its origin.
        """

    @abstractmethod
    def check_data(self) -> Sequence[Path]:
        """Check that the prepared data is what the run needs.

        Returns:
            The files that identify the training data.

        Raises:
            ConfigurationError: naming what is missing or different.
        """

    @abstractmethod
    def check_folders(self, together: Sequence[RunFolder], waits: bool) -> None:
        """Raise unless everything exists that must exist before the first stage.

        Args:
            together: the runs that are started together with this one, in their order.
            waits: whether the job of the baseline is in SLURM's queue.

        Raises:
            ConfigurationError: naming the folder or the file.
        """

    def check_names(self) -> None:
        """Raise unless the names in the run can be those of files.

        Raises:
            ConfigurationError: naming the flag or the key.
        """
        check_file_name(self.experiment["dataset"], f"{self.experiment.where('dataset')}: dataset")
        check_file_name(self.experiment.row, "--name")
        if self.baseline is not None:
            check_file_name(self.baseline, "--baseline")
        for name in self.experiment["data.test-sets"] or {}:
            check_file_name(name, self.experiment.where(f"data.test-sets.{name}"))

    def check_local(self) -> None:
        """Raise unless the raw data that the user has exist.

        Raises:
            ConfigurationError: they do not.
        """
        if self.data.local is not None and not self.data.local.exists():
            raise ConfigurationError(f"--data {self.data.local}: there is no such folder")

    def finish(self) -> None:  # noqa: B027  most kinds have nothing to collect
        """Collect the results after the last stage."""

    def train(self) -> Stage:
        """The training, on the device of the run."""
        experiment, device, folder = self.experiment, self.device, self.folder
        # By default the first process sends the checkpoint to the others in a form that torch
        # >= 2.6 does not load, so training on several GPUs could not resume.
        several = ["--load-checkpoint-on-all-dp-ranks"] if device.workers > 1 else []
        # Not an input of the stage: the record of the run refuses another checkpoint.
        start = [] if self.initial is None else ["--init-from", str(self.initial.model)]
        by_gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
        arguments = [
            *self.common_arguments(),
            *("--arch", experiment["arch"]),
            *flags.argv(experiment["train"]),
            *start,
            *self.batch.argv(),
            # Without a world size fairseq takes every GPU it sees.
            *("--distributed-world-size", str(device.workers)),
            *several,
            *(by_gloo if not device.gpus and device.workers > 1 else []),
            *precision_flags(experiment, device),
            *("--seed", str(self.seed), "--save-dir", str(folder.checkpoints)),
            *("--log-format", "json"),
        ]
        program = tuple(train_prefix(device, sys.executable))
        return Stage("train", program, tuple(arguments), outputs=(folder.last_checkpoint,))

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished and its model still exists."""
        return self.folder.is_finished and self.model.is_file()

    def stages(self) -> List[Stage]:
        """All stages in their order."""
        prepare = self.prepare()
        return [*([] if prepare is None else [prepare]), self.train(), *self.evaluation()]

    def cpu(self) -> List[str]:
        """The flag that prevents fairseq from using a GPU in a run on the CPU."""
        return [] if self.device.gpus else ["--cpu"]


def environment(device: Device) -> Dict[str, str]:
    """Return the variables that the commands need in addition to those of the user."""
    variables = python_path(USER_DIR.parent, os.environ)
    if device.threads:
        variables["OMP_NUM_THREADS"] = str(device.threads)
    if not device.gpus:
        # Threads that spin while they wait slow training down tenfold on cores that are shared.
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
    return variables


def python_path(folder: Path, variables: Mapping[str, str]) -> Dict[str, str]:
    """Return the variable that lets the commands import the package from ``folder``.

    An installed package needs none, and its folder could hide modules of the standard library.
    """
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    if folder.resolve() in installed:
        return {}
    folders = [str(folder), *variables.get("PYTHONPATH", "").split(os.pathsep)]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, folders)))}

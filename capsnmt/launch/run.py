"""One run: a row of a table with one seed. Its folder's ``config.json`` says all that it is.

The steps of its kind are in `translation` and `classification`; both train by the command that is
built here. Nothing in these modules runs anything.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

import capsnmt
from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, train_prefix
from capsnmt.launch.settings import Settings
from capsnmt.process import package_path
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import Device, RunConfig
from capsnmt.steps import Step

USER_DIR = Path(capsnmt.__file__).parent


@dataclass(frozen=True)
class Run:
    """A run.

    Attributes:
        config: what it is.
        settings: those of the configuration.
        folder: its folder.
    """

    config: RunConfig
    settings: Settings
    folder: RunFolder

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read the run of a folder.

        Raises:
            ConfigurationError: it holds no run, or that of another version.
        """
        folder = RunFolder(path)
        if not folder.exists:
            raise ConfigurationError(
                f"--resume {path}: holds no run (config.json): give OUTPUT/ROW/seed-S"
            )
        config = folder.read_config()
        return cls(config, records.build(config.settings, Settings, folder.config), folder)

    @property
    def title(self) -> str:
        """The run in words."""
        config = self.config
        return ", ".join(
            [config.row, *([config.task] if config.task else []), f"seed {config.seed}"]
        )

    @property
    def output(self) -> Path:
        """The folder of all rows."""
        return self.folder.row.parent.parent if self.config.task else self.folder.row.parent

    @property
    def device(self) -> Device:
        """What it is trained on."""
        return self.config.device

    @property
    def data(self) -> PreparedData:
        """The prepared data."""
        return PreparedData(self.shown(self.folder.data(self.config)))

    @property
    def sources(self) -> Optional[Path]:
        """The raw data, if the user has it."""
        return None if self.config.sources is None else self.shown(Path(self.config.sources))

    @property
    def model(self) -> Path:
        """The checkpoint that is evaluated."""
        return self.folder.model(self.config)

    @property
    def initial(self) -> Optional[RunFolder]:
        """The run whose model the training starts from."""
        return None if self.config.initial is None else self.of(self.config.initial)

    def of(self, row: str) -> RunFolder:
        """The folder of another row with the same task and seed."""
        task = [self.config.task] if self.config.task else []
        return RunFolder(self.output.joinpath(row, *task, self.folder.path.name))

    def earlier(self) -> List[RunFolder]:
        """The runs that this one starts from and is tested against."""
        rows = (self.config.initial, self.config.baseline)
        return [self.of(row) for row in rows if row is not None]

    @property
    def total_updates(self) -> Optional[int]:
        """The updates of the complete training; ``None`` if epochs or patience end it."""
        updates = self.settings.train.get("max-update")
        return updates if isinstance(updates, int) else None

    def shown(self, path: Path) -> Path:
        """Return a path as the commands have it: relative if the folder of the run is."""
        here = Path.cwd()
        relative = not self.folder.path.is_absolute() and path.is_relative_to(here)
        return path.relative_to(here) if relative else path

    def cpu(self) -> List[str]:
        """The flag that prevents fairseq from using a GPU in a run on the CPU."""
        return [] if self.device.gpus else ["--cpu"]


def train_step(run: Run, arguments: List[str], batch: Batch) -> Step:
    """Return the training, on the device of a run.

    Args:
        run: the run.
        arguments: those of data and task.
        batch: the update, split over the devices.
    """
    device, folder = run.device, run.folder
    # By default the first process sends the checkpoint to the others in a form that torch >= 2.6
    # does not load, so training on several GPUs could not resume.
    several = ["--load-checkpoint-on-all-dp-ranks"] if device.workers > 1 else []
    # Not an input of the step: the record of the training refuses another checkpoint.
    start = []
    if run.initial is not None:
        start = ["--init-from", str(run.initial.model(run.config))]
    # D: on a CPU the training loads its data itself, without processes that compete with it.
    chosen = bool(device.gpus) or "num-workers" in run.settings.train
    by_gloo = ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    words = [
        *arguments,
        *("--arch", str(run.settings.arch)),
        *flags.training(run.settings),
        *start,
        *batch.argv(),
        # Without a world size fairseq takes every GPU it sees.
        *("--distributed-world-size", str(device.workers)),
        *several,
        *(by_gloo if not device.gpus and device.workers > 1 else []),
        *([] if chosen else ["--num-workers", "0"]),
        *precision_flags(run),
        *("--seed", str(run.config.seed), "--save-dir", str(folder.checkpoints)),
        *("--log-format", "json", "--log-file", str(folder.train_log)),
    ]
    program = tuple(train_prefix(device, sys.executable))
    return Step("train", (folder.last_checkpoint,), program=program, arguments=tuple(words))


def python(module: str) -> tuple[str, ...]:
    """Return the program that runs a module with this interpreter."""
    return (sys.executable, "-m", module)


def environment(device: Device) -> Dict[str, str]:
    """Return the variables that the commands need in addition to those of the user."""
    variables = package_path()
    if device.threads:
        variables["OMP_NUM_THREADS"] = str(device.threads)
    if not device.gpus:
        # Threads that spin while they wait slow training down tenfold on cores that are shared.
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
    return variables


def precision_flags(run: Run) -> List[str]:
    """Return the flags of the precision that the settings ask for.

    **D**: ``fp16`` is for GPUs; on a CPU it is fp32. ``auto`` is fp16 on a GPU, bf16 for a model
    that overflows it, if the GPU has it. On a CPU it is bf16 if that has the instructions
    (docs/precision.md has the measurements), for the architectures that have the switch; otherwise
    fp32. The checkpoint has the setting of ``bf16``, so the later steps need no flag.

    Raises:
        ConfigurationError: the model overflows the fp16 that the settings ask for.
    """
    import torch
    from fairseq.models import ARCH_MODEL_REGISTRY

    import capsnmt.plugin  # noqa: F401  registers our architectures
    from capsnmt.modules.autocast import bf16_obstacle

    precision, arch = run.settings.precision, str(run.settings.arch)
    if precision == "auto" and run.device.gpus:
        # a plan may be made on another machine
        obstacle = bf16_obstacle("cuda") if torch.cuda.is_available() else None
        precision = "fp16" if not _overflows_fp16(run.settings) else "fp32" if obstacle else "bf16"
    elif precision == "auto":
        model = ARCH_MODEL_REGISTRY.get(arch)
        ours = model is not None and model.__module__.startswith("capsnmt.")
        precision = "bf16" if ours and bf16_obstacle("cpu") is None else "fp32"
    if precision == "bf16":
        return ["--autocast", "bf16"]
    if precision != "fp16" or not run.device.gpus:
        return []
    if _overflows_fp16(run.settings):
        raise ConfigurationError(
            f"{run.config.row}: precision: fp16: --layer-aggregation dlcl and dense overflow it: "
            f"set bf16, fp32 or auto"
        )
    return ["--fp16"]


def _overflows_fp16(settings: Settings) -> bool:
    """Return whether ``--layer-aggregation``, of the row or of its preset, cannot train in fp16."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    from capsnmt.modules.layer_aggregation import CONNECTIONS

    preset = argparse.Namespace()
    ARCH_CONFIG_REGISTRY.get(str(settings.arch), vars)(preset)
    chosen = settings.train.get("layer-aggregation", getattr(preset, "layer_aggregation", "none"))
    return chosen in CONNECTIONS


def check_precision(run: Run) -> None:
    """Raise if this machine has no bf16 and the settings ask for it.

    Raises:
        ConfigurationError: naming the obstacle.
    """
    from capsnmt.modules.autocast import bf16_obstacle

    obstacle = bf16_obstacle("cuda" if run.device.gpus else "cpu")
    if run.settings.precision == "bf16" and obstacle is not None:
        raise ConfigurationError(f"{run.config.row}: precision: bf16: {obstacle}: set fp32 or auto")

"""One run: a row of a table with one seed. Its folder's ``config.json`` says all that it is.

The training step is in `training_step`, the other steps of its kind are in `translation` and
`classification`. Nothing in these modules runs anything.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

from capsnmt.cli import ConfigurationError
from capsnmt.configurations import Settings
from capsnmt.corpora.prepared import PreparedData
from capsnmt.machine import tcmalloc
from capsnmt.process import package_path
from capsnmt.runs.records import Device, RunConfig, RunFolder


@dataclass(frozen=True)
class Run:
    """A run."""

    config: RunConfig
    folder: RunFolder
    resumed: bool = False  # by its config.json alone
    start: Optional[RunConfig] = None  # of the run that it starts from, if launched with it

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Read the run of a folder."""
        folder = RunFolder(Path(os.path.abspath(path)))  # "." names neither row nor seed
        if not folder.exists:
            raise ConfigurationError(
                f"--resume {path} is no run (config.json); give OUTPUT/ROW/seed-S"
            )
        return cls(folder.read_config(), folder, resumed=True)

    @property
    def settings(self) -> Settings:
        """The settings of its row."""
        return self.config.settings

    @property
    def title(self) -> str:
        """The run in words."""
        config = self.config
        return ", ".join(filter(None, (config.row, config.task, f"seed {config.seed}")))

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
        """The prepared data; of a run that is resumed, where they are now."""
        path = self.folder.data(self.config) if self.resumed else Path(self.config.data)
        return PreparedData(self.as_given(path))

    @property
    def sources(self) -> Optional[Path]:
        """The raw data, if the user has it."""
        return None if self.config.sources is None else self.as_given(Path(self.config.sources))

    @property
    def model(self) -> Path:
        """The checkpoint that is evaluated."""
        return self.folder.model(self.config)

    @property
    def initial(self) -> Optional[RunFolder]:
        """The run whose model the training starts from."""
        return None if self.config.initial is None else self.of(self.config.initial)

    @property
    def initial_model(self) -> Optional[Path]:
        """The checkpoint that the training starts from: the one that the other run evaluates."""
        other = self.initial
        if other is None:
            return None
        known = other.read_config() if other.exists else self.config
        return other.model(self.start or known)

    def of(self, row: str) -> RunFolder:
        """The folder of another row with the same task and seed."""
        place = filter(None, (row, self.config.task, self.folder.path.name))
        return RunFolder(self.output.joinpath(*place))

    def earlier(self) -> List[RunFolder]:
        """The runs that this one starts from and is tested against."""
        rows = dict.fromkeys([self.config.initial, self.config.baseline])
        return [self.of(row) for row in rows if row is not None]

    def as_given(self, path: Path) -> Path:
        """Return a path as the commands have it: relative if the folder of the run is.

        The working folder stays absolute: "." is in no path that lies below it.
        """
        here = Path.cwd()
        relative = not self.folder.path.is_absolute() and here in path.parents
        return path.relative_to(here) if relative else path


def python(module: str) -> tuple[str, ...]:
    """Return the program that runs a module with this interpreter."""
    return (sys.executable, "-m", module)


def environment(device: Device) -> Dict[str, str]:
    """Return the variables that the commands need in addition to those of the user."""
    variables = package_path()
    if device.threads:
        variables["OMP_NUM_THREADS"] = str(device.threads)
    if not device.gpus:
        # with --cpu fairseq would still connect processes and pin memory by a GPU, maybe a busy one
        variables["CUDA_VISIBLE_DEVICES"] = ""
        # Threads that spin while they wait slow training down tenfold on cores that are shared.
        variables["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")
        variables.update(tcmalloc())
    return variables

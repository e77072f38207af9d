"""Finished runs, as reports read them: everything is in the run's folder, nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capsnmt.cli import ConfigurationError
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import Description


@dataclass(frozen=True)
class FinishedRun:
    """A finished run.

    Attributes:
        folder: its folder.
        description: its ``config.json``.
    """

    folder: RunFolder
    description: Description

    @property
    def row(self) -> str:
        """The name of the configuration."""
        return self.description.row

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.description.seed


def require_finished(folder: RunFolder, results: Path) -> None:
    """Raise unless a folder holds a finished run.

    Args:
        folder: the folder.
        results: the record that the run's last stage writes.

    Raises:
        ConfigurationError: the folder or one of its records is missing.
    """
    if not folder.path.is_dir():
        raise ConfigurationError(f"{folder}: there is no such folder: give OUTPUT/ROW/seed-S")
    for path in (folder.description, results):
        if not path.is_file():
            raise ConfigurationError(
                f"{folder}: holds no finished run, {path.name} is missing: give OUTPUT/ROW/seed-S, "
                f"or run the launcher's command again to resume the run"
            )


def evaluated_checkpoint(path: Path) -> Path:
    """Return the checkpoint that a finished run was evaluated with.

    Raises:
        ConfigurationError: the folder holds no finished run.
    """
    folder = RunFolder(path)
    description = folder.read_description() if folder.exists else None
    classifies = description is not None and description.classifies
    require_finished(folder, folder.result if classifies else folder.scores)
    return folder.model(folder.read_description())

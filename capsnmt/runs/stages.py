"""Records of completed stages: their command, their inputs, and their unchanged outputs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Dict, Iterable, Optional, Protocol, Sequence

from capsnmt import records
from capsnmt.checksums import Checksums
from capsnmt.cli import ConfigurationError
from capsnmt.files import sha256
from capsnmt.runs.records import StageRecord

# **D**: a file up to this size is identified by its checksum, so that making it again with the same
# content changes nothing; a larger file, such as a checkpoint, by its size and time.
CHECKSUM_BYTES = 1 << 24


class Stage(Protocol):
    """The properties of a stage that its record depends on."""

    @property
    def name(self) -> str:
        """The name of the stage."""

    @property
    def arguments(self) -> Sequence[str]:
        """The words of its command that follow the program."""

    @property
    def inputs(self) -> Sequence[Path]:
        """The files it reads."""

    @property
    def outputs(self) -> Sequence[Path]:
        """The files it writes."""


class StageRecords:
    """The record of completed stages, ``stages.json`` in a run's folder.

    Args:
        path: the file.
        folders: folders whose relative and absolute paths are treated as equal.
        checksums: the cache of the files' checksums; none by default.
    """

    def __init__(
        self, path: Path, folders: Sequence[Path] = (), checksums: Optional[Checksums] = None
    ) -> None:
        self.path, self.folders, self.checksums = path, folders, checksums
        self.reload()

    def reload(self) -> None:
        """Read the file again; another launcher may have written it."""
        found = records.read(self.path, dict) if self.path.exists() else {}
        try:
            self.records = {name: StageRecord(**record) for name, record in found.items()}
        except TypeError:
            raise ConfigurationError(
                f"{self.path}: not a record of stages: delete it, and the stages run again"
            ) from None

    def complete(self, stage: Stage) -> bool:
        """Return whether a stage is complete, with this command and these inputs."""
        if stage.name not in self.records or not all(path.exists() for path in stage.outputs):
            return False
        return self.records[stage.name] == self._record(stage)

    def made(self, stage: Stage) -> bool:
        """Return whether the outputs are as a complete stage left them, with any command."""
        record = self.records.get(stage.name)
        return record is not None and record.outputs == self._signatures(stage.outputs)

    def forget(self, stage: Stage) -> None:
        """Drop the record of a stage, so that it runs again."""
        if self.records.pop(stage.name, None) is not None:
            self._write()

    def record(self, stage: Stage) -> None:
        """Record that a stage has just been completed."""
        self.records[stage.name] = self._record(stage)
        self._write()
        if self.checksums is not None:
            self.checksums.save()

    def _write(self) -> None:
        records.write(self.path, {name: vars(record) for name, record in self.records.items()})

    def _record(self, stage: Stage) -> StageRecord:
        # Not the interpreter, the module and the checkout: the same run in another environment, or
        # after a module was renamed, is the same.
        words = zip(("", *stage.arguments), stage.arguments)
        command = [self._absolute(word) for before, word in words if before != "--user-dir"]
        text = json.dumps([command, self._signatures(stage.inputs)])
        key = hashlib.sha256(text.encode()).hexdigest()
        return StageRecord(key, self._signatures(stage.outputs))

    def _signatures(self, paths: Iterable[Path]) -> Dict[str, str]:
        existing = [path for path in paths if path.exists()]
        return {self._absolute(str(path)): self._signature(path) for path in existing}

    def _signature(self, path: Path) -> str:
        status = path.stat()
        if status.st_size > CHECKSUM_BYTES:
            return f"{status.st_size} bytes, {status.st_mtime_ns} ns"
        return sha256(path) if self.checksums is None else self.checksums.of(path)

    def _absolute(self, word: str) -> str:
        """An argument, ``PATH`` or ``NAME=PATH``, with a path below the folders made absolute."""
        name, equals, path = word.rpartition("=")
        for folder in map(str, self.folders):
            if path == folder or path.startswith(folder + os.sep):
                return name + equals + os.path.abspath(path)
        return word

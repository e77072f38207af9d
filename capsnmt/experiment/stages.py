"""Which stages of a run are complete: same command, same inputs, outputs as they were left."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, Iterable, Sequence

from capsnmt.experiment.commands import Command
from capsnmt.files import read_json, sha256, write_json

# **D**: a file up to this size is known by its checksum, so that one made again in the same way
# changes nothing; a larger one, a checkpoint, by its size and time.
CHECKSUM_BYTES = 1 << 24


class Stages:
    """The record of completed stages, ``stages.json`` in a run's folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "stages.json"
        self.records: Dict[str, Any] = read_json(self.path) if self.path.exists() else {}

    def complete(self, command: Command, inputs: Sequence[Path], outputs: Sequence[Path]) -> bool:
        """Whether the stage needs not run again."""
        now = {"key": _key(command, inputs), "outputs": _signatures(outputs)}
        return all(output.exists() for output in outputs) and self.records.get(command.stage) == now

    def record(self, command: Command, inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
        """Note that the stage has just been completed."""
        self.records[command.stage] = {
            "key": _key(command, inputs),
            "outputs": _signatures(outputs),
        }
        write_json(self.path, self.records)


def _key(command: Command, inputs: Iterable[Path]) -> str:
    text = json.dumps([command.argv, _signatures(inputs)])
    return hashlib.sha256(text.encode()).hexdigest()


def _signatures(paths: Iterable[Path]) -> Dict[str, str]:
    return {str(path): _signature(path) for path in paths if path.exists()}


def _signature(path: Path) -> str:
    status = path.stat()
    if status.st_size <= CHECKSUM_BYTES:
        return sha256(path)
    return f"{status.st_size} bytes, {status.st_mtime_ns} ns"

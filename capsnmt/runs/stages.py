"""Completed stages: same command, same inputs, and outputs that are still as they were written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Dict, Iterable, Sequence

from capsnmt.files import read_json, sha256, write_json
from capsnmt.runs.records import StageRecord

# **D**: a file up to this size is identified by its checksum, so that one that is made again with
# the same content changes nothing; a larger one, a checkpoint, by its size and time.
CHECKSUM_BYTES = 1 << 24


class StageRecords:
    """The record of completed stages, ``stages.json`` in a run's folder.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_json(path) if path.exists() else {}
        self.records = {name: StageRecord(**record) for name, record in found.items()}

    def complete(
        self, name: str, argv: Sequence[str], inputs: Iterable[Path], outputs: Iterable[Path]
    ) -> bool:
        """Return whether the stage need not run again."""
        outputs = list(outputs)
        if name not in self.records or not all(output.exists() for output in outputs):
            return False
        return self.records[name] == StageRecord(_key(argv, inputs), _signatures(outputs))

    def record(
        self, name: str, argv: Sequence[str], inputs: Iterable[Path], outputs: Iterable[Path]
    ) -> None:
        """Record that the stage has just been completed."""
        self.records[name] = StageRecord(_key(argv, inputs), _signatures(outputs))
        write_json(self.path, {name: vars(record) for name, record in self.records.items()})


def _key(argv: Sequence[str], inputs: Iterable[Path]) -> str:
    text = json.dumps([list(argv), _signatures(inputs)])
    return hashlib.sha256(text.encode()).hexdigest()


def _signatures(paths: Iterable[Path]) -> Dict[str, str]:
    return {str(path): _signature(path) for path in paths if path.exists()}


def _signature(path: Path) -> str:
    status = path.stat()
    if status.st_size <= CHECKSUM_BYTES:
        return sha256(path)
    return f"{status.st_size} bytes, {status.st_mtime_ns} ns"

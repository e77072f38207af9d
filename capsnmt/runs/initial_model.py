"""The record of the trained model that a run started from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capsnmt.runs.json_objects import RecordError, known_fields, whole_number


@dataclass(frozen=True)
class InitialModel:
    """The checkpoint of another row that a training started from.

    Attributes:
        row: the other row.
        checkpoint: the file.
        checksum: its SHA-256.
        updates: the updates that it was trained for, including those of its own initial model.
    """

    row: str
    checkpoint: str
    checksum: str
    updates: int

    def __str__(self) -> str:
        return f"{self.row} ({self.updates:,} updates)"

    @classmethod
    def from_json(cls, value: Any, source: object) -> InitialModel:
        """Read the content of ``initial`` in ``config.json``.

        Raises:
            RecordError: a key is missing or a value has the wrong type.
        """
        known = known_fields(cls, value, source)
        for name in ("row", "checkpoint", "checksum"):
            if not isinstance(known[name], str):
                raise RecordError(source, f"a text as {name} of initial")
        known["updates"] = whole_number(known["updates"], "updates of initial", source)
        return cls(**known)

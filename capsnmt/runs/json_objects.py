"""JSON objects as dataclasses: the keys, the types, and the error of a record that is damaged."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any, Dict

from capsnmt.cli import ConfigurationError


class RecordError(ConfigurationError):
    """A record lacks a key, or a value has the wrong type."""

    def __init__(self, source: object, missing: object) -> None:
        super().__init__(
            f"{source}: lacks {missing}: it was not written by this launcher; delete the file and "
            f"run the launcher's command again"
        )


def json_key(name: str) -> str:
    """Return the key of a field: ``device_name`` is ``device-name``."""
    return name.replace("_", "-")


def known_fields(record: Any, value: Any, source: object) -> Dict[str, Any]:
    """Return the fields of a dataclass that a JSON object has, by their names.

    Args:
        record: the dataclass.
        value: the parsed JSON; keys that are not fields are ignored.
        source: the name of the file, for an error.

    Raises:
        RecordError: it is no object, or a field without a default is missing.
    """
    if not isinstance(value, dict):
        raise RecordError(source, "a JSON object")
    fields = record.__dataclass_fields__
    found = {name: value[key] for name in fields for key in (name, json_key(name)) if key in value}
    for name, each in fields.items():
        required = each.default is MISSING and each.default_factory is MISSING
        if required and name not in found:
            raise RecordError(source, repr(name))
    return found


def whole_number(value: Any, name: str, source: object) -> int:
    """Return a value as an integer.

    Raises:
        RecordError: it is not a whole number.
    """
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise RecordError(source, f"a whole number as {name}") from None

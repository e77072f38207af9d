"""YAML mappings to dataclasses, with every key and type checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from capsnmt.errors import ConfigurationError

YAML_TYPES: dict[str, Any] = {
    "Mapping": Mapping,
    "tuple": list,
    "str": str,
    "bool": bool,
    "int": int,
    "float": (int, float),
}
YAML_NAMES = {
    "Mapping": "a mapping",
    "tuple": "a list",
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
}
T = TypeVar("T")


def build(kind: type[T], values: Any, where: str) -> T:
    """Return the dataclass `kind` made of a YAML mapping, whose keys are checked.

    Raises:
        ConfigurationError: a key is unknown or missing, or a value is of another type; the message
            starts with `where`.
    """
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"{where}: a mapping is needed, not {values!r}")
    known = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    needed = {
        name
        for name, item in known.items()
        if item.default is MISSING and item.default_factory is MISSING
    }
    unknown, missing = set(values) - set(known), needed - set(values)
    if unknown or missing:
        odd = min(map(str, unknown or missing))
        fault = f"unknown key {odd!r}" if unknown else f"key {odd!r} is missing"
        raise ConfigurationError(f"{where}: {fault}; the keys are {', '.join(known)}")
    for name, value in values.items():
        # The annotations are text, since nothing here evaluates them.
        wanted = str(known[name].type).split("[")[0]
        if wanted in YAML_TYPES and not isinstance(value, YAML_TYPES[wanted]):
            raise ConfigurationError(
                f"{where}: {name} is {value!r}: {YAML_NAMES[wanted]} is needed"
            )
    return kind(**values)

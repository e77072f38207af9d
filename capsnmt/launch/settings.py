"""Settings: what a row sets in its files, and what the command line overrides.

Each file is checked as it is read, so that an error names the file and the key. Files and flags are
merged as mappings; ``null`` removes a key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from capsnmt import records
from capsnmt.cli import ConfigurationError, shown
from capsnmt.files import check_file_name
from capsnmt.runs.records import Line, Settings

MAPPINGS = ("data", "batch", "train", "average", "generate", "test-sets", "options")
# What a row cannot do without.
NEEDED = ("dataset", "arch", "precision")
BY_A_CLASSIFIER = ("batch.sentences-per-update", "batch.max-sentences")
BY_A_TRANSLATION = (
    *("data.source-lang", "data.target-lang", "data.test-sets"),
    *("batch.tokens-per-update", "batch.max-tokens", "train.max-update"),
)


class SettingsFile(Settings, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A file of settings."""

    extends: Optional[Line] = None  # the file that it changes: a sibling, or DATASET/ROW
    paper: Optional[Dict[str, Any]] = None  # what papers report of the row; no run depends on it


def merge(settings: Dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Merge changes into settings; ``None`` removes a key."""
    for key, value in changes.items():
        if isinstance(value, dict):
            inner = settings.setdefault(key, {})
            merge(inner, value)
        elif value is None:
            settings.pop(key, None)
        else:
            settings[key] = value


def override(settings: Dict[str, Any], key: str, value: Any, origin: str) -> None:
    """Set a dotted key.

    >>> settings = {"train": {"lr": 0.005}}
    >>> override(settings, "train.lr", 0.003, "--set")
    >>> settings
    {'train': {'lr': 0.003}}
    """
    changes = value
    for part in reversed(key.split(".")):
        changes = {part: changes}
    records.build(_without_removed(changes), Settings, origin)
    merge(settings, changes)


def assign(settings: Dict[str, Any], assignment: str) -> None:
    """Apply ``KEY=VALUE`` of ``--set``; the value is YAML, ``null`` removes the key."""
    key, equals, text = assignment.partition("=")
    if not key or not equals or not text.strip():  # such as a variable of the shell that is not set
        raise ConfigurationError(
            f"--set {shown(assignment)[1:-1]} is not KEY=VALUE; give such as train.lr=0.003, where "
            f"null removes a key"
        )
    try:
        value = records.parse_yaml(text, "--set")
    except records.RecordError:  # a text such as @name, which YAML reserves
        value = text
    override(settings, key, value, "--set")


def complete(settings: Mapping[str, Any], row: str) -> Settings:
    """Return the settings of a row."""
    made = records.build(settings, Settings, row)
    for key in (*NEEDED, *(BY_A_CLASSIFIER if made.classifies else BY_A_TRANSLATION)):
        section, _, name = key.rpartition(".")
        if not (settings.get(section, {}) if section else settings).get(name):
            raise ConfigurationError(
                f"{row}: {key} is not set; add it to the configuration or give --set {key}=VALUE"
            )
    if not made.classifies and made.data.source_lang == made.data.target_lang:
        raise ConfigurationError(
            f"{row}: data.target-lang is {made.data.target_lang}, also the source language; give "
            f"two languages"
        )
    if len(made.average) > 1:
        raise ConfigurationError(
            f"{row}: average has {', '.join(made.average)}; choose one of them and set the others "
            f"to null"
        )
    check_file_name(str(made.dataset), f"{row}: dataset")
    for name in made.data.test_sets:
        check_file_name(name, f"{row}: data.test-sets.{name}")
    return made


def read(path: Path) -> Dict[str, Any]:
    """Return the content of a file of settings, checked."""
    settings = records.load(path)
    records.build(_without_removed(settings), SettingsFile, path)
    return dict(settings)


def _without_removed(settings: Any) -> Any:
    """Return settings without the mappings that ``null`` removes: their classes allow no null."""
    if not isinstance(settings, dict):
        return settings
    return {
        key: {} if value is None and key in MAPPINGS else _without_removed(value)
        for key, value in settings.items()
    }

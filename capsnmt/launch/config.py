"""Experiment configurations: small YAML files that extend one another."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import yaml

from capsnmt.cli import SHOWN, ConfigurationError, check_line, shown
from capsnmt.files import bundled_folder
from capsnmt.launch.schema import (
    REQUIRED,
    REQUIRED_TO_CLASSIFY,
    REQUIRED_TO_TRANSLATE,
    SCHEMA,
    check_paper,
)
from capsnmt.runs.records import SENTENCE_TASKS, SweepPoint
from capsnmt.settings import check, parse_yaml, read_yaml


@dataclass
class Experiment:
    """A resolved configuration.

    ``settings`` are nested as in :data:`capsnmt.launch.schema.SCHEMA`; ``origin`` is the file
    or flag that set each leaf. ``paper`` holds what papers print about exactly this row, by paper.
    ``point`` is the point of a sweep, if the row belongs to one.
    """

    row: str
    settings: Dict[str, Any] = field(default_factory=dict)
    origin: Dict[str, str] = field(default_factory=dict)
    paper: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    point: Optional[SweepPoint] = None

    def __getitem__(self, key: str) -> Any:
        """Return the value of a dotted key, or ``None`` if it is not set."""
        value: Any = self.settings
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def where(self, key: str) -> str:
        """Return what set a key: a file, or a flag of the command line."""
        return self.origin.get(key, self.row)

    def put(self, key: str, value: Any, origin: str) -> None:
        """Set a dotted key; ``None`` removes it, a mapping is merged into the existing one.

        Raises:
            ConfigurationError: the key is unknown, the value is not of its kind, or one of them has
                a line end.
        """
        path = key.split(".")
        for text in (key, value):
            if isinstance(text, str):
                check_line(text, f"{origin}: {shown(key)[1:-1]}")
        check(SCHEMA, path, value, origin)
        if isinstance(value, dict):
            for name, inner in value.items():
                self.put(f"{key}.{name}", inner, origin)
            return
        parent = self.settings
        for part in path[:-1]:
            parent = parent.setdefault(part, {})
        for stale in [old for old in self.origin if (old + ".").startswith(key + ".")]:
            del self.origin[stale]
        if value is None:
            parent.pop(path[-1], None)
        else:
            parent[path[-1]] = value
            self.origin[key] = origin


HYDRA = "hydra"  # files for fairseq-hydra-train
LISTED = 8  # names that fit into one line of an error


def configuration_folders() -> List[Path]:
    """Return the folders of named configurations: the user's ``./configs``, then the project's."""
    folders = [Path("configs"), bundled_folder("configs")]
    if folders[0].is_dir() and folders[0].resolve() != folders[1].resolve():
        return folders
    return folders[1:]


def available() -> List[str]:
    """Return the names ``DATASET/ROW`` of all configurations."""
    return sorted(
        {
            path.relative_to(folder).with_suffix("").as_posix()
            for folder in configuration_folders()
            for path in folder.glob("*/*.yaml")
            if path.parent.name != HYDRA
        }
    )


def named_rows(dataset: str) -> List[str]:
    """Return the names ``DATASET/ROW`` of a data set.

    Raises:
        ConfigurationError: there is no such data set.
    """
    names = [name for name in available() if name.startswith(f"{dataset}/")]
    if not names:
        datasets = sorted({name.split("/")[0] for name in available()})
        raise ConfigurationError(f"--dataset {dataset}: choose from {', '.join(datasets)}")
    return names


def find(name: str, dataset: Optional[str] = None, origin: str = "--config") -> Path:
    """Return the file of a configuration given as a path, as ``DATASET/ROW``, or as ``ROW``.

    Args:
        name: the configuration.
        dataset: the data set of a ``ROW``.
        origin: what names it, for an error.

    Raises:
        ConfigurationError: there is none; the message lists the available ones, or the most similar
            if there are many.
    """
    for path in _candidates(name, dataset):
        if path.is_file():
            return path
    valid = [row for row in available() if not dataset or row.startswith(dataset + "/")]
    valid = valid or available()
    choice = f"one of {', '.join(valid)}"
    if len(valid) > LISTED:
        full_name = name if "/" in name or not dataset else f"{dataset}/{name}"
        similar = difflib.get_close_matches(full_name, valid, LISTED, cutoff=0)
        folders = " and ".join(map(str, configuration_folders()))
        choice = f"one of the {len(valid)} in {folders}, such as {', '.join(similar)}"
    raise ConfigurationError(
        f"{origin} {name}: there is no such configuration: give the path of a YAML file or {choice}"
    )


def _candidates(name: str, dataset: Optional[str]) -> Iterator[Path]:
    if name.endswith((".yaml", ".yml")):
        yield Path(name)
    for full_name in [f"{dataset}/{name}", name] if dataset else [name]:
        for folder in configuration_folders():
            yield folder / f"{full_name}.yaml"


def load(path: Path, row: Optional[str] = None) -> Experiment:
    """Load the configuration in ``path`` on top of all it extends.

    Raises:
        ConfigurationError: a file is missing or wrong; the message names it and the key.
    """
    experiment = Experiment(path.stem if row is None else row)
    for file, settings in reversed(_lineage(path)):
        # Printed values are not inherited: they belong to one row.
        experiment.paper = settings.pop("paper", None) or {}
        check_paper(experiment.paper, str(file))
        for key, value in settings.items():
            experiment.put(str(key), value, str(file))
        recipe = (settings.get("data") or {}).get("recipe")
        if recipe is not None and recipe.endswith(".yaml"):  # a file beside this one
            experiment.put("data.recipe", str(file.parent / recipe), str(file))
    return experiment


def override(experiment: Experiment, assignments: Sequence[str]) -> None:
    """Apply ``KEY=VALUE`` texts of ``--set``; values are YAML, ``null`` removes the key.

    >>> experiment = Experiment("row", {"train": {"lr": 0.005}})
    >>> override(experiment, ["train.lr=0.003"])
    >>> experiment["train.lr"]
    0.003

    Raises:
        ConfigurationError: an assignment is malformed or its key unknown.
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals):
            raise ConfigurationError(
                f"--set {assignment[:SHOWN]}: give KEY=VALUE, for example --set train.lr=0.003"
            )
        if not text.strip():  # such as a variable of the shell that is not set
            raise ConfigurationError(
                f"--set {assignment[:SHOWN]}: the value is empty: give one, or null to remove the "
                f"key"
            )
        try:
            value = parse_yaml(text)
        except yaml.YAMLError:  # a text such as @name, which YAML reserves
            value = text
        experiment.put(key, value, "--set")


def require_complete(experiment: Experiment) -> None:
    """Raise unless everything that a run needs is set.

    Raises:
        ConfigurationError: a required key is missing, or two exclude each other.
    """
    classifies = experiment["train.task"] in SENTENCE_TASKS
    for key in (*REQUIRED, *(REQUIRED_TO_CLASSIFY if classifies else REQUIRED_TO_TRANSLATE)):
        if experiment[key] is None:
            raise ConfigurationError(
                f"{experiment.row}: {key} is not set: add it to the configuration or give "
                f"--set {key}=VALUE"
            )
    source = experiment["data.source-lang"]
    if source is not None and source == experiment["data.target-lang"]:
        raise ConfigurationError(
            f"{experiment.where('data.target-lang')}: data.target-lang: {source}: is the source "
            f"language, too: give two languages"
        )
    if not classifies and not experiment["data.test-sets"]:
        raise ConfigurationError(
            f"{experiment.where('data.test-sets')}: data.test-sets: is empty: name one, such as "
            f"--set data.test-sets.test=test"
        )
    if len(experiment["average"] or {}) > 1:
        raise ConfigurationError(
            f"{experiment.where('average.' + list(experiment['average'])[-1])}: average: "
            f"{', '.join(experiment['average'])}: choose one of them and set the others to null"
        )


def _lineage(path: Path) -> List[Tuple[Path, Dict[str, Any]]]:
    """Return the file and all it extends, the farthest ancestor last."""
    lineage: List[Tuple[Path, Dict[str, Any]]] = []
    while True:
        settings = read_yaml(path)
        parent = settings.pop("extends", None)
        lineage.append((path, settings))
        if parent is None:
            return lineage
        path = _ancestor(str(parent), [file for file, _ in lineage])


def _ancestor(name: str, lineage: Sequence[Path]) -> Path:
    """Return the file that the last one of ``lineage`` extends: a sibling, or ``DATASET/ROW``."""
    path = lineage[-1]
    seen = [file.resolve() for file in lineage]
    candidates = [folder / f"{name}.yaml" for folder in (path.parent, *configuration_folders())]
    found = [candidate for candidate in candidates if candidate.is_file()]
    # ./configs/multi30k/base.yaml may extend the multi30k/base of the project.
    for candidate in found:
        if candidate.resolve() not in seen:
            return candidate
    if found:
        raise ConfigurationError(f"{path}: extends: {name}: {found[0]} extends itself")
    siblings = sorted(other.stem for other in path.parent.glob("*.yaml") if other != path)
    raise ConfigurationError(
        f"{path}: extends: there is no {candidates[0]}: give DATASET/ROW or one of "
        f"{', '.join(siblings)}"
    )

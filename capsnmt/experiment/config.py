"""Experiment configurations: small YAML files that extend one another, every key checked."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Hashable, List, Optional, Sequence, Tuple

import yaml

from capsnmt import resources
from capsnmt.errors import ConfigurationError
from capsnmt.experiment.schema import REQUIRED, SCHEMA, check, check_paper


@dataclass
class Experiment:
    """A resolved configuration.

    ``settings`` are nested as :data:`capsnmt.experiment.schema.SCHEMA` says, ``origin`` tells of
    each leaf who set it. ``paper`` is what papers print about exactly this row, by paper.
    """

    row: str
    settings: Dict[str, Any] = field(default_factory=dict)
    origin: Dict[str, str] = field(default_factory=dict)
    paper: Dict[str, Dict[str, Any]] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        """The value of a dotted key; ``None`` where nothing is set."""
        value: Any = self.settings
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def where(self, key: str) -> str:
        """Who set a key: a file, or a flag of the command line."""
        return self.origin.get(key, self.row)

    def put(self, key: str, value: Any, origin: str) -> None:
        """Set a dotted key; ``None`` removes it, a mapping is merged into what is there.

        Raises:
            ConfigurationError: the key is unknown or the value is not of its kind.
        """
        path = key.split(".")
        check(path, value, origin)
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


# Files for fairseq-hydra-train, beside the rows.
HYDRA = "hydra"
LISTED = 8  # names that one line of an error can bear


def configuration_folders() -> List[Path]:
    """Where named configurations are looked for: here first, then beside the package."""
    folders = [Path("configs"), resources.folder("configs")]
    return [folder for folder in folders if folder.is_dir()][:1] or folders[1:]


def available() -> List[str]:
    """The names ``DATASET/ROW`` of all configurations."""
    return sorted(
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in configuration_folders()
        for path in folder.glob("*/*.yaml")
        if path.parent.name != HYDRA
    )


def find(name: str, dataset: Optional[str] = None) -> Path:
    """The file of a configuration given as a path, as ``DATASET/ROW``, or as ``ROW``.

    Raises:
        ConfigurationError: there is none; the message lists those there are, or of many the
            likeliest.
    """
    candidates = [Path(name)] if name.endswith((".yaml", ".yml")) else []
    for folder in configuration_folders():
        names = [f"{dataset}/{name}", name] if dataset else [name]
        candidates += [folder / f"{candidate}.yaml" for candidate in names]
    for path in candidates:
        if path.is_file():
            return path
    valid = [row for row in available() if not dataset or row.startswith(dataset + "/")]
    valid = valid or available()
    which = f"one of {', '.join(valid)}"
    if len(valid) > LISTED:
        whole = name if "/" in name or not dataset else f"{dataset}/{name}"
        near = difflib.get_close_matches(whole, valid, LISTED, cutoff=0)
        which = (
            f"one of the {len(valid)} in {configuration_folders()[0]}, such as {', '.join(near)}"
        )
    raise ConfigurationError(
        f"--config {name}: there is no such configuration: give the path of a YAML file or {which}"
    )


def load(path: Path, row: Optional[str] = None) -> Experiment:
    """The configuration in ``path`` on top of all it extends.

    Raises:
        ConfigurationError: one line naming the file and the key.
    """
    experiment = Experiment(row or path.stem)
    for file, settings in reversed(_lineage(path)):
        # A configuration inherits no printed values: they belong to one row.
        experiment.paper = settings.pop("paper", None) or {}
        check_paper(experiment.paper, str(file))
        for key, value in settings.items():
            experiment.put(key, value, str(file))
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
                f"--set {assignment}: give KEY=VALUE, for example --set train.lr=0.003"
            )
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        experiment.put(key, value, "--set")


def require_complete(experiment: Experiment) -> None:
    """Raise unless everything a run needs is set.

    Raises:
        ConfigurationError: naming what is missing.
    """
    for key in REQUIRED:
        if experiment[key] is None:
            raise ConfigurationError(
                f"{experiment.row}: {key} is not set: add it to the configuration or give "
                f"--set {key}=VALUE"
            )
    if len(experiment["average"] or {}) > 1:
        raise ConfigurationError(
            f"{experiment.where('average.' + list(experiment['average'])[-1])}: average: "
            f"{', '.join(experiment['average'])}: choose one of them and set the others to null"
        )


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML lets a key stand twice and the last one win: a setting would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Hashable, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        repeated = [key for number, key in enumerate(keys) if key in keys[:number]]
        if repeated:
            raise yaml.constructor.ConstructorError(
                problem=f"{repeated[0]} stands there twice", problem_mark=node.start_mark
            )
        return super().construct_mapping(node, deep)


def _read(path: Path) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            settings = yaml.load(file, Loader=_UniqueKeyLoader)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{path}:{line} not valid YAML: {problem}") from None
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{path}: a configuration is a mapping of {', '.join(SCHEMA)}")
    return settings


def _lineage(path: Path) -> List[Tuple[Path, Dict[str, Any]]]:
    """The file and all it extends, the farthest ancestor last."""
    lineage: List[Tuple[Path, Dict[str, Any]]] = []
    while True:
        if path.resolve() in [seen.resolve() for seen, _ in lineage]:
            raise ConfigurationError(f"{lineage[-1][0]}: extends: {path} extends itself")
        settings = _read(path)
        parent = settings.pop("extends", None)
        lineage.append((path, settings))
        if parent is None:
            return lineage
        ancestor = path.parent / f"{parent}.yaml"
        if not ancestor.is_file():
            siblings = sorted(other.stem for other in path.parent.glob("*.yaml") if other != path)
            raise ConfigurationError(
                f"{path}: extends: there is no {ancestor}: choose from {', '.join(siblings)}"
            )
        path = ancestor

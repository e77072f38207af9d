"""Configurations: where the YAML files of settings are, and how they extend one another."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.files import bundled_folder
from capsnmt.launch.settings import merge, read

HYDRA = "hydra"  # files for fairseq-hydra-train
LISTED = 8  # names that fit into one line of an error


def load(path: Path, children: Tuple[Path, ...] = ()) -> Dict[str, Any]:
    """Return the settings in ``path`` on top of all it extends, as a mapping.

    Args:
        path: the file.
        children: the files that extend it, each the next.
    """
    settings = read(path)
    settings.pop("paper", None)
    parent = settings.pop("extends", None)
    recipe = (settings.get("data") or {}).get("recipe")
    if recipe is not None and recipe.endswith(".yaml"):  # a file beside this one
        settings["data"]["recipe"] = str(path.parent / recipe)
    family = (*children, path)
    merged = {} if parent is None else load(_parent(parent, family), family)
    merge(merged, settings)
    return merged


def _parent(name: str, family: Tuple[Path, ...]) -> Path:
    """Return the file that the last one of ``family`` extends: a sibling, or ``DATASET/ROW``."""
    path = family[-1]
    folders = (path.parent, *configuration_folders())
    found = [file for file in (folder / f"{name}.yaml" for folder in folders) if file.is_file()]
    for file in found:
        # ./configs/multi30k/base.yaml may extend the multi30k/base of the project.
        if not any(file.samefile(each) for each in family):
            return file
    problem = f"{found[0]} extends itself" if found else f"there is no {folders[0] / name}.yaml"
    siblings = sorted(other.stem for other in path.parent.glob("*.yaml") if other != path)
    raise ConfigurationError(
        f"{path}: extends is {name}, but {problem}; give DATASET/ROW or one of "
        f"{', '.join(siblings)}"
    )


def configuration_folders() -> List[Path]:
    """Return the folders of named configurations: the user's ``./configs``, then the project's."""
    folders = [Path("configs"), bundled_folder("configs")]
    if folders[0].is_dir() and folders[0].resolve() != folders[1].resolve():
        return folders
    return folders[1:]


def find(name: str, dataset: Optional[str] = None, flag: str = "--config") -> Path:
    """Return the file of a configuration given as a path, as ``DATASET/ROW``, or as ``ROW``."""
    paths = [Path(name)] if name.endswith((".yaml", ".yml")) else []
    for full_name in [f"{dataset}/{name}", name] if dataset else [name]:
        paths += [folder / f"{full_name}.yaml" for folder in configuration_folders()]
    for path in paths:
        if path.is_file():
            return path
    valid = available(dataset)
    similar = difflib.get_close_matches(name, valid, LISTED, cutoff=0)
    raise ConfigurationError(
        f"{flag} {name} is no configuration; give the path of a YAML file or one of the "
        f"{len(valid)} in {' and '.join(map(str, configuration_folders()))}, such as "
        f"{', '.join(similar)}"
    )


def available(dataset: Optional[str] = None) -> List[str]:
    """Return the names ``DATASET/ROW`` of all configurations, or of a data set."""
    every = {
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in configuration_folders()
        for path in folder.glob("*/*.yaml")
        if path.parent.name != HYDRA
    }
    names = sorted(name for name in every if dataset is None or name.startswith(f"{dataset}/"))
    if not names:
        datasets = sorted({name.split("/")[0] for name in every})
        raise ConfigurationError(
            f"--dataset {dataset} is no data set; choose from {', '.join(datasets)}"
        )
    return names


def rows_of(dataset: str) -> List[str]:
    """Return the rows of a data set: its configurations, except those that only others extend."""
    files = {name.split("/")[1]: read(find(name)) for name in available(dataset)}
    extended = {str(settings.get("extends")).rpartition("/")[2] for settings in files.values()}
    return [name for name, settings in files.items() if "paper" in settings or name not in extended]

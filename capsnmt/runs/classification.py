"""The results of a set of runs: by row, seed and task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.seeds import Spread, spread
from capsnmt.files import read_json

RESULTS = "results.json"
CONFIG = "config.json"


@dataclass(frozen=True)
class Result:
    """One trained classifier: ``measures`` are those of the test split."""

    row: str
    seed: int
    task: str
    probing_task: Optional[str]
    updates: int
    parameters: int
    measures: Dict[str, Any]


def read_result(path: Path) -> Result:
    """The result in a run's folder, as ``capsnmt.experiment.classification_run`` leaves it.

    Raises:
        ConfigurationError: a file is missing, or has no test split.
    """
    config, results = read_json(path.with_name(CONFIG)), read_json(path)
    try:
        return Result(
            config["row"],
            config["seed"],
            results["task"],
            results["probing_task"],
            results["updates"],
            results["parameters"],
            results["splits"]["test"],
        )
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: {error} is missing: not of a finished run") from None


def has_results(folder: Path) -> bool:
    """Whether a finished classifier is below the folder."""
    return any(folder.glob(f"**/{RESULTS}"))


def read_results(folders: Sequence[Path]) -> List[Result]:
    """The results of all finished runs below the folders, in the order of their rows and seeds.

    Raises:
        ConfigurationError: there is none, or one cannot be read.
    """
    paths = [path for folder in folders for path in sorted(folder.glob(f"**/{RESULTS}"))]
    if not paths:
        raise ConfigurationError(
            f"{', '.join(map(str, folders))}: there is no {RESULTS} of a finished run: give the "
            f"folders of capsnmt.experiment.classification_run"
        )
    return [read_result(path) for path in paths]


def in_order(names: Iterable[str], wanted: Sequence[str] = ()) -> List[str]:
    """Each name once: those wanted in their order, then the others as they come."""
    found = list(dict.fromkeys(names))
    return [name for name in wanted if name in found] + [n for n in found if n not in wanted]


def over_seeds(
    results: Iterable[Result], row: str, value: Callable[[Result], Optional[float]]
) -> Optional[Spread]:
    """Mean and deviation of a value over the seeds of a row; ``None`` where no run has it."""
    values = [value(result) for result in results if result.row == row]
    present = [number for number in values if number is not None]
    return spread(present) if present else None

"""Finished sentence classifiers: by row, seed and task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterable, List, Optional, Sequence

from capsnmt.evaluation.seeds import Spread, spread
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import ClassifierResult, Description, Measures


@dataclass(frozen=True)
class ClassifierRun:
    """One trained and evaluated sentence classifier."""

    folder: RunFolder
    description: Description
    result: ClassifierResult

    @property
    def row(self) -> str:
        """The name of the configuration."""
        return self.description.row

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.description.seed

    @property
    def task(self) -> str:
        """``probing`` or ``logical_inference``."""
        return self.result.task

    @property
    def probing_task(self) -> Optional[str]:
        """The probing task, if it is one."""
        return self.result.probing_task

    @property
    def measures(self) -> Measures:
        """The measures of the test split."""
        return self.result.test


def load_classifier_run(folder: RunFolder) -> ClassifierRun:
    """Read the folder of a finished sentence classifier.

    Raises:
        ConfigurationError: a record is missing or damaged.
    """
    return ClassifierRun(folder, folder.read_description(), folder.read_result())


def in_order(names: Iterable[str], wanted: Sequence[str] = ()) -> List[str]:
    """Each name once: those wanted in their order, then the others as they come."""
    found = list(dict.fromkeys(names))
    return [name for name in wanted if name in found] + [n for n in found if n not in wanted]


def over_seeds(
    runs: Iterable[ClassifierRun], row: str, value: Callable[[Measures], Optional[float]]
) -> Optional[Spread]:
    """Mean and deviation of a measure over the seeds of a row; ``None`` if no run has it."""
    values = [value(run.measures) for run in runs if run.row == row]
    present = [number for number in values if number is not None]
    return spread(present) if present else None


def mean_over_tasks(means: Iterable[Optional[Spread]]) -> Optional[Spread]:
    """Average the means of several tasks; ``None`` if a task is missing.

    >>> mean_over_tasks([spread([40.0, 42.0]), spread([50.0])])
    Spread(mean=45.5, std=None, values=[41.0, 50.0])
    >>> mean_over_tasks([spread([40.0]), None])
    """
    found = list(means)
    present = [each.mean for each in found if each is not None]
    return replace(spread(present), std=None) if len(present) == len(found) else None

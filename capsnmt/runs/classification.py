"""Finished sentence classifiers, and means over their seeds and tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Iterable, List, Optional, Sequence

from capsnmt.evaluation.seeds import Spread, spread
from capsnmt.runs.finished import FinishedRun, require_finished
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import ClassifierResult, Measures


@dataclass(frozen=True)
class FinishedClassifier(FinishedRun):
    """A trained and evaluated sentence classifier.

    Attributes:
        result: its ``results.json``.
    """

    result: ClassifierResult

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


def load_classifier(folder: RunFolder) -> FinishedClassifier:
    """Read the folder of a finished sentence classifier.

    Raises:
        ConfigurationError: it is missing, the run is not finished, or a record is damaged.
    """
    require_finished(folder, folder.result)
    return FinishedClassifier(folder, folder.read_description(), folder.read_result())


def in_order(names: Iterable[str], wanted: Sequence[str] = ()) -> List[str]:
    """Each name once: the wanted ones in their order, then the others as they occur."""
    found = list(dict.fromkeys(names))
    return [name for name in wanted if name in found] + [n for n in found if n not in wanted]


def over_seeds(
    runs: Iterable[FinishedClassifier], row: str, value: Callable[[Measures], Optional[float]]
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

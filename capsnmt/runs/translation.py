"""Finished translation runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.scores import Evaluation, OutputScores
from capsnmt.runs.finished import FinishedRun, require_finished
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.json_objects import RecordError
from capsnmt.runs.learning_curve import LearningCurve

LOG_INTERVAL = 100  # fairseq's default


@dataclass(frozen=True)
class FinishedTranslation(FinishedRun):
    """A finished translation run.

    Attributes:
        scores: its ``scores.json``: test set -> evaluation.
        curve: its learning curve.
    """

    scores: Mapping[str, Evaluation]
    curve: LearningCurve

    @property
    def parameters(self) -> int:
        """The number of learned parameters.

        Raises:
            ConfigurationError: it is not recorded.
        """
        if self.description.parameters is None:
            raise ConfigurationError(
                f"{self.folder}: its number of parameters is not recorded: run the launcher's "
                "command again"
            )
        return self.description.parameters

    @property
    def data(self) -> Path:
        """The prepared data."""
        return self.folder.data(self.description) or Path("data")

    @property
    def configured_updates(self) -> Optional[int]:
        """The updates that the configuration asks for; ``None`` if it names no number."""
        updates = (self.description.settings.get("train") or {}).get("max-update")
        return updates if isinstance(updates, int) else None

    @property
    def lacks_updates(self) -> bool:
        """Whether the log ends before the updates that the configuration asks for.

        fairseq validates after the last update; without validation the last entry is that of a
        ``log-interval``.
        """
        configured, curve = self.configured_updates, self.curve
        if configured is None:
            return False
        interval = (self.description.settings.get("train") or {}).get("log-interval", LOG_INTERVAL)
        return curve.updates + (0 if curve.valid else interval - 1) < configured

    def output(self, test_set: str) -> OutputScores:
        """The scores of this run on a test set.

        Raises:
            KeyError: the test set was not scored, or not with this run.
        """
        return self.scores[test_set].system(self.row).outputs[0]


def load_translation(folder: RunFolder) -> FinishedTranslation:
    """Read the folder of a finished translation run.

    Raises:
        ConfigurationError: it is missing, the run is not finished, or a file is damaged.
    """
    require_finished(folder, folder.scores)
    description, scores = folder.read_description(), folder.read_scores()
    try:
        run = FinishedTranslation(folder, description, scores, folder.read_learning_curve())
        _check(run)
    except ConfigurationError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{folder}: config.json or scores.json", error) from None
    return run


def distinct_names(runs: Sequence[FinishedTranslation]) -> List[str]:
    """The shortest names that differ: the rows, rows with seeds, or the folders."""
    candidates = (
        [run.row for run in runs],
        [f"{run.row}, seed {run.seed}" for run in runs],
        [str(run.folder) for run in runs],
    )
    return next((names for names in candidates if len(set(names)) == len(runs)), candidates[-1])


def check_comparable(runs: Sequence[FinishedTranslation]) -> None:
    """Raise unless all runs translated the same test sets.

    Raises:
        ConfigurationError: naming the two folders and what differs.
    """
    first = runs[0]
    for run in runs[1:]:
        for what, one, other in (
            ("languages", first.description.languages, run.description.languages),
            ("test sets", list(first.scores), list(run.scores)),
        ):
            if one != other:
                raise ConfigurationError(
                    f"{run.folder}: has the {what} {', '.join(other)}, but {first.folder} has "
                    f"{', '.join(one)}: report them separately"
                )
    folders = [run.folder.path.resolve() for run in runs]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise ConfigurationError(f"{runs[number].folder}: is given twice: name each run once")


def _check(run: FinishedTranslation) -> None:
    """Read everything that a report needs, so that an error occurs before anything is written."""
    _ = run.parameters, run.description.architecture, run.description.languages
    for name in ("data", "versions", "device"):
        if not getattr(run.description, name):
            raise KeyError(name)
    for test_set in run.scores:
        run.output(test_set)

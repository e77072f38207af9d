"""The layout of a run's folder, and the records in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Optional

from capsnmt import records
from capsnmt.checksums import Checksums
from capsnmt.evaluation.document import from_json
from capsnmt.evaluation.scores import Evaluation
from capsnmt.runs.json_objects import RecordError
from capsnmt.runs.learning_curve import LearningCurve, read_learning_curve
from capsnmt.runs.records import ClassifierResult, Description


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    The properties name its files, whether they exist or not. ``read_...`` and ``write_...``
    convert the JSON files from and to the dataclasses of :mod:`capsnmt.runs.records`.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def description(self) -> Path:
        """The record of what the run is and how it was made."""
        return self.path / "config.json"

    @property
    def commands(self) -> Path:
        """The commands of the run, as a script."""
        return self.path / "commands.sh"

    @property
    def stages(self) -> Path:
        """The completed stages."""
        return self.path / "stages.json"

    @property
    def lock(self) -> Path:
        """The lock of the launcher that uses the folder."""
        return self.path / ".lock"

    @property
    def train_log(self) -> Path:
        """The statistics of the training, as JSON lines."""
        return self.path / "train.log"

    @property
    def console_log(self) -> Path:
        """All other output of the commands."""
        return self.path / "console.log"

    @property
    def checkpoints(self) -> Path:
        """The folder where fairseq-train saves."""
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path:
        """The checkpoint that a stopped training resumes from."""
        return self.checkpoints / "checkpoint_last.pt"

    @property
    def best_checkpoint(self) -> Path:
        """The checkpoint with the best validation result."""
        return self.checkpoints / "checkpoint_best.pt"

    @property
    def averaged(self) -> Path:
        """The average of several checkpoints."""
        return self.path / "averaged.pt"

    def generated(self, test_set: str) -> Path:
        """The output of fairseq-generate on a test set."""
        return self.path / f"generate-{test_set}.txt"

    def scored(self, test_set: str) -> Path:
        """The scores of one test set: the document of ``capsnmt-evaluate --json``."""
        return self.path / f"scores-{test_set}.json"

    @property
    def scores(self) -> Path:
        """The scores of all test sets; a translation run that has it is finished."""
        return self.path / "scores.json"

    @property
    def result(self) -> Path:
        """The evaluation of a classifier; a classification run that has it is finished."""
        return self.path / "results.json"

    @property
    def job_script(self) -> Path:
        """The batch script for SLURM."""
        return self.path / "job.sh"

    @property
    def job(self) -> Path:
        """The record of the SLURM job."""
        return self.path / "job.json"

    def job_log(self, job: str) -> Path:
        """The output of a SLURM job; ``%j`` stands for its number in a batch script."""
        return self.path / f"slurm-{job}.log"

    @property
    def row(self) -> Path:
        """The folder of the row (and task): it holds the seeds."""
        return self.path.parent

    @property
    def summary(self) -> Path:
        """The means over the seeds of the row."""
        return self.row / "summary.json"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.description.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return self.scores.is_file() or self.result.is_file()

    def model(self, description: Description) -> Path:
        """The checkpoint that is evaluated."""
        if description.classifies:
            return self.best_checkpoint
        return self.averaged if description.averages else self.last_checkpoint

    def data(self, description: Description) -> Optional[Path]:
        """The prepared data: where the run found it, or next to the row if both were moved."""
        recorded = Path(description.data) if description.data else None
        beside = self.path.resolve().parents[1] / "data"
        found = recorded is not None and recorded.is_dir()
        return beside if not found and beside.is_dir() else recorded

    def read_description(self) -> Description:
        """Read ``config.json``.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        return Description.from_json(records.load(self.description), self.description)

    def write_description(self, description: Description) -> None:
        """Write ``config.json``."""
        records.write(self.description, description.to_json())

    def read_scores(self) -> Dict[str, Evaluation]:
        """Read ``scores.json``: test set -> evaluation.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        scores = records.load(self.scores)
        if not isinstance(scores, dict) or not scores:
            raise RecordError(self.scores, "test sets")
        return {
            test_set: from_json(document, f"{self.scores}: {test_set}")
            for test_set, document in scores.items()
        }

    def checksums(self) -> Checksums:
        """The checksums of the files that the run reads; an unchanged file is read once."""
        return Checksums(self.path)

    def write_scores(self, test_sets: Iterable[str]) -> None:
        """Collect the scores of all test sets in ``scores.json``."""
        records.write(self.scores, {name: records.load(self.scored(name)) for name in test_sets})

    def read_result(self) -> ClassifierResult:
        """Read the evaluation of a classifier.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        return ClassifierResult.from_json(records.load(self.result), self.result)

    def read_learning_curve(self) -> LearningCurve:
        """Read the learning curve in ``train.log``.

        Raises:
            ConfigurationError: it is missing or holds no training loss.
        """
        return read_learning_curve(self.train_log)

    def read_commands(self) -> str:
        """Read the commands of the run, a script.

        Raises:
            ConfigurationError: it is missing.
        """
        try:
            return self.commands.read_text(encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise RecordError(self.path, f"{self.commands.name} ({error.strerror})") from None

    def read_job(self) -> Optional[str]:
        """Return the number of the last submitted SLURM job; ``None`` if there was none."""
        return str(records.read(self.job, dict).get("id")) if self.job.exists() else None

    def write_job(self, job: str) -> None:
        """Record the number of a submitted SLURM job."""
        records.write(self.job, {"id": job})

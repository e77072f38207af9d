"""The layout of a run's folder."""

from __future__ import annotations

from pathlib import Path

from capsnmt import records
from capsnmt.records import RecordError
from capsnmt.runs.records import RunConfig, TrainingRecord


class RunFolder:
    """The folder of one run, ``OUTPUT/ROW/seed-S``, or ``OUTPUT/ROW/TASK/seed-S``.

    The attributes name its files, whether they exist or not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"  # what the run is: RunConfig
        self.training = path / "training.json"  # what it was trained with: TrainingRecord
        self.commands = path / "commands.sh"  # its commands, as a script
        self.steps = path / "steps.json"  # the completed steps
        self.lock = path / ".lock"  # of the launcher that uses the folder
        self.train_log = path / "train.log"  # the statistics of the training, as JSON lines
        self.console_log = path / "console.log"  # all other output of the commands
        self.checkpoints = path / "checkpoints"  # where fairseq-train saves
        self.last_checkpoint = self.checkpoints / "checkpoint_last.pt"  # to resume from
        self.best_checkpoint = self.checkpoints / "checkpoint_best.pt"  # by the validation
        self.averaged = path / "averaged.pt"  # the average of several checkpoints
        self.scores = path / "scores.json"  # of all test sets: a translation run is finished
        self.result = path / "results.json"  # ClassifierResult: a classification run is finished
        self.job_script = path / "job.sh"  # for SLURM
        self.job = path / "job.json"  # the SLURM job
        self.job_lock = path / ".job.lock"  # of the launcher that submits it
        self.row = path.parent  # the folder of the row (and task), with its seeds
        self.summary = self.row / "summary.json"  # the means over the seeds

    def __str__(self) -> str:
        return str(self.path)

    def generated(self, test_set: str) -> Path:
        """The output of fairseq-generate on a test set."""
        return self.path / f"generate-{test_set}.txt"

    def scored(self, test_set: str) -> Path:
        """The scores of one test set: the document of ``capsnmt-evaluate --json``."""
        return self.path / f"scores-{test_set}.json"

    def job_log(self, job: str) -> Path:
        """The output of a SLURM job; ``%j`` stands for its number in a batch script."""
        return self.path / f"slurm-{job}.log"

    @property
    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished."""
        return self.scores.is_file() or self.result.is_file()

    def model(self, config: RunConfig) -> Path:
        """The checkpoint that is evaluated."""
        if config.settings.classifies:
            return self.best_checkpoint
        return self.averaged if config.settings.average else self.last_checkpoint

    def data(self, config: RunConfig) -> Path:
        """The prepared data: where the run found it, or next to the row if both were moved."""
        output = self.path.absolute().parents[2 if config.task else 1]
        recorded, beside = self.path / config.data, output / "data"
        moved = self.exists and not recorded.is_dir() and beside.is_dir()
        return beside if moved else recorded

    def read_config(self) -> RunConfig:
        """Read ``config.json``."""
        value = records.load(self.config)
        if isinstance(value, dict) and value.get("version") != 2:
            raise RecordError(
                f"{self.config} was made by another version of capsnmt; launch the row again with "
                "another --output, or delete the folder"
            )
        return records.build(value, RunConfig, self.config)

    def read_training(self) -> TrainingRecord:
        """Read ``training.json``."""
        return records.read(self.training, TrainingRecord)

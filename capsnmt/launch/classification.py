"""Sentence classification: prepare, train, evaluate the checkpoint of the best validation accuracy.

``train.task`` is ``probing``, with the probing task as a further axis, or ``logical_inference``.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.files import plain_or_gzipped
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, split_batch
from capsnmt.launch.recipes import SENTENCE_RECIPES, describe_sentences, sentence_data
from capsnmt.launch.run import USER_DIR, Run
from capsnmt.launch.stage import Stage, python
from capsnmt.runs.folder import RunFolder
from capsnmt.sentences.logical_inference.data import MAX_OPERATORS
from capsnmt.sentences.probing.tasks import require_task

# Sections of a configuration that only translation has.
TRANSLATION_ONLY = ("average", "generate", "score")


class ClassificationRun(Run):
    """A sentence classifier."""

    @property
    def model(self) -> Path:
        """The checkpoint that is evaluated.

        **D**: that with the best validation accuracy.
        """
        return self.folder.best_checkpoint

    @property
    def batch(self) -> Batch:
        """The sentences of an update, split over the run's devices."""
        batch = self.experiment["batch"]
        return split_batch(
            batch["sentences-per-update"],
            batch["max-sentences"],
            self.device.workers,
            unit="sentences",
        )

    @property
    def results(self) -> Sequence[Path]:
        """The measures of the run, and the means over its seeds."""
        return [self.folder.result, self.folder.summary]

    @property
    def data_folder(self) -> Path:
        """The folder with the files of the task: the prepared data, or the user's own files."""
        own = self.data.local
        recipe = SENTENCE_RECIPES.get(self.experiment["data.recipe"])
        if own is not None and (recipe is None or recipe.takes_files):
            return own
        return self.data.folder

    @property
    def data_files(self) -> List[Path]:
        """The files that the classifier is trained and tested on, plain or gzipped."""
        if self.task is not None:
            names = [require_task(self.task).file]
        else:
            numbers = range(MAX_OPERATORS + 1)
            names = [f"{part}{number}" for part in ("train", "test") for number in numbers]
        return [plain_or_gzipped(self.data_folder / name) for name in names]

    def prepare(self) -> Optional[Stage]:
        """Download, build or generate the files; ``None`` if the user provides them."""
        recipe = SENTENCE_RECIPES.get(self.experiment["data.recipe"])
        if self.data_folder != self.data.folder or self.experiment["data.recipe"] is None:
            return None
        # Data that was built from the user's text needs the text no more.
        if self.data.local is None and recipe and not recipe.takes_files and self.is_prepared:
            return None
        return sentence_data(self.experiment, self.data)

    @property
    def is_prepared(self) -> bool:
        """Whether the data is complete."""
        return self.data.manifest.is_file() and all(path.is_file() for path in self.data_files)

    def data_steps(self) -> List[str]:
        """What the preparation does, in short lines for the plan."""
        return describe_sentences(self.experiment, self.data.folder)

    def common_arguments(self) -> List[str]:
        """The arguments of fairseq's commands that describe data and task."""
        probing = ["--probing-task", self.task] if self.task else []
        every_batch = ["--required-batch-size-multiple", "1"]
        user_dir = ["--user-dir", str(USER_DIR)]
        return [str(self.data_folder), *user_dir, *probing, *self.cpu(), *every_batch]

    def evaluation(self) -> List[Stage]:
        """All measures of the model, on validation and test."""
        program = python("capsnmt.launch.evaluate_classifier")
        arguments = (
            str(self.model),
            *("--data", str(self.data_folder), "--splits", "valid,test"),
            *("--json", str(self.folder.result), *self.cpu()),
        )
        inputs = (self.model, *self.data_files)
        return [Stage("evaluate", program, arguments, inputs, (self.folder.result,))]

    def check_settings(self) -> None:
        """Raise unless fairseq will understand every flag.

        Raises:
            ConfigurationError: naming the flag and its origin.
        """
        experiment = self.experiment
        for section in TRANSLATION_ONLY:
            if experiment[section]:
                key = f"{section}.{next(iter(experiment[section]))}"
                raise ConfigurationError(
                    f"{experiment.where(key)}: {section}: has no effect on a sentence classifier: "
                    f"drop it"
                )
        if self.baseline is not None:
            raise ConfigurationError(
                f"--baseline {self.baseline}: has no effect on sentence classifiers, which are not "
                f"tested for significance: drop it"
            )
        if experiment["train.batch-size"] is not None:
            raise ConfigurationError(
                f"{experiment.where('train.batch-size')}: train.batch-size: set "
                f"batch.sentences-per-update"
            )
        if self.task is not None and experiment["train.task"] != "probing":
            raise ConfigurationError(
                f"--tasks {self.task}: {experiment.row} is not a probing experiment: drop it"
            )
        if self.task is not None:
            require_task(self.task)
        flags.check_owned(experiment)
        flags.check_literals(experiment)
        flags.check_arch(experiment)
        flags.check_train(experiment, self.train().arguments)

    def check_folders(self, together: Sequence[RunFolder], waits: bool) -> None:
        """Raise unless the user's data exists.

        Raises:
            ConfigurationError: naming the folder or the file.
        """
        if self.data_folder == self.data.local:
            self.check_data()

    def check_data(self) -> List[Path]:
        """Check that all files of the task exist, and return them.

        Raises:
            ConfigurationError: naming the first that is missing.
        """
        for path in self.data_files:
            if not path.is_file():
                recipe = self.experiment["data.recipe"]
                raise ConfigurationError(
                    f"{path}: is missing: {SENTENCE_RECIPES[recipe].fix}"
                    if recipe
                    else f"{path}: is missing: give another --data"
                )
        return self.data_files

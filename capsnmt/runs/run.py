"""What a report says of one run: everything is read from the run's folder, nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from torch import Tensor

from capsnmt.checkpoints.storage import load_checkpoint
from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.document import METRICS
from capsnmt.files import read_json
from capsnmt.runs.learning_curve import LearningCurve, read_learning_curve

# What fairseq keeps in a model's state without learning it.
BUFFERS = ("version", "_float_tensor")


@dataclass(frozen=True)
class ReportedRun:
    """A finished run of the launcher.

    Attributes:
        folder: the run's folder, ``OUTPUT/ROW/seed-S``.
        config: its ``config.json``.
        scores: its ``scores.json``: test set -> the document of ``capsnmt-evaluate --json``.
        curve: its learning curve.
        parameters: how many numbers the model learned.
    """

    folder: Path
    config: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, Any]]
    curve: LearningCurve
    parameters: int

    @property
    def row(self) -> str:
        """The name of the configuration."""
        return str(self.config["row"])

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return int(self.config["seed"])

    @property
    def architecture(self) -> str:
        """The name given to ``--arch``."""
        return str(self.config["settings"]["arch"])

    @property
    def languages(self) -> Sequence[str]:
        """Source and target language."""
        data = self.config["settings"]["data"]
        return data["source-lang"], data["target-lang"]

    @property
    def data(self) -> Path:
        """The prepared data: where the run found it, or where it lies if all has been moved."""
        recorded = Path(self.config["data"])
        moved = self.folder.resolve().parents[1] / "data"
        return moved if not recorded.is_dir() and moved.is_dir() else recorded

    def system(self, test_set: str) -> Mapping[str, Any]:
        """The scores of this run on a test set: metric -> score and signature.

        Raises:
            KeyError: the test set was not scored, or not with this run.
        """
        for each in self.scores[test_set]["systems"]:
            if each["name"] == self.row:
                return each
        raise KeyError(f"{test_set}: {self.row}")


def load_run(folder: Path) -> ReportedRun:
    """Read a run's folder.

    Raises:
        ConfigurationError: it is missing, the run is not finished, or a file is damaged.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: there is no such folder: give OUTPUT/ROW/seed-S")
    for name in ("config.json", "scores.json"):
        if not (folder / name).is_file():
            raise ConfigurationError(
                f"{folder}: holds no finished run, {name} is missing: give OUTPUT/ROW/seed-S, or "
                f"run the launcher's command again, which goes on to the end"
            )
    config, scores = read_json(folder / "config.json"), read_json(folder / "scores.json")
    try:
        run = ReportedRun(
            folder,
            config,
            scores,
            read_learning_curve(folder / "train.log"),
            count_parameters(model_path(folder, config)),
        )
        _check(run)
    except ConfigurationError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{folder}: config.json or scores.json lacks {error}: not written by this launcher; "
            f"delete scores.json and run the launcher's command again"
        ) from None
    return run


def model_path(folder: Path, config: Mapping[str, Any]) -> Path:
    """The checkpoint that was evaluated."""
    averaged = config["settings"].get("average")
    return folder / ("averaged.pt" if averaged else "checkpoints/checkpoint_last.pt")


def count_parameters(path: Path) -> int:
    """How many numbers a checkpoint's model learned; what is tied counts once.

    Raises:
        CheckpointError: the file is missing or no checkpoint.
    """
    learned: Dict[int, int] = {
        tensor.data_ptr(): tensor.numel()
        for name, tensor in load_checkpoint(path)["model"].items()
        if isinstance(tensor, Tensor) and name.rsplit(".", 1)[-1] not in BUFFERS
    }
    return sum(learned.values())


def distinct_names(runs: Sequence[ReportedRun]) -> List[str]:
    """The shortest names that tell the runs apart: row, then seed, then folder."""
    candidates = (
        [run.row for run in runs],
        [f"{run.row}, seed {run.seed}" for run in runs],
        [str(run.folder) for run in runs],
    )
    return next((names for names in candidates if len(set(names)) == len(runs)), candidates[-1])


def check_comparable(runs: Sequence[ReportedRun]) -> None:
    """Raise unless all runs translated the same test sets.

    Raises:
        ConfigurationError: naming the two folders and what differs.
    """
    first = runs[0]
    for run in runs[1:]:
        for what, one, other in (
            ("languages", first.languages, run.languages),
            ("test sets", list(first.scores), list(run.scores)),
        ):
            if one != other:
                raise ConfigurationError(
                    f"{run.folder}: has the {what} {', '.join(other)}, but {first.folder} has "
                    f"{', '.join(one)}: report them apart"
                )
    folders = [run.folder.resolve() for run in runs]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise ConfigurationError(f"{runs[number].folder}: is given twice: name each run once")


def _check(run: ReportedRun) -> None:
    """Touch all that a report needs, so that what is missing is told before anything is written."""
    _ = run.row, run.seed, run.architecture, run.languages, run.data, run.config["versions"]
    if not isinstance(run.scores, dict) or not run.scores:
        raise TypeError("test sets")
    for test_set in run.scores:
        for metric in METRICS:
            score = run.system(test_set)[metric]
            float(score["score"]), str(score["signature"])

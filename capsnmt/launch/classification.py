"""The steps of a sentence classifier: prepare, train, evaluate the best checkpoint.

``train.task`` is ``probing``, with the probing task as a further axis, or ``logical_inference``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.files import plain_or_gzipped
from capsnmt.launch import flags
from capsnmt.launch.devices import Batch, split_batch
from capsnmt.launch.run import USER_DIR, Run, python, train_step
from capsnmt.sentences.logical_inference import MAX_OPERATORS
from capsnmt.sentences.senteval import require_task
from capsnmt.steps import Step


@dataclass(frozen=True)
class Recipe:
    """A command that makes the data of a sentence classifier.

    Attributes:
        module: the module to run.
        takes_files: whether ``--data`` names the finished files, which then need no preparation;
            otherwise it names the text that they are built from.
        fetches: whether it uses the network.
        fix: what to do when a file is missing.
    """

    module: str
    takes_files: bool
    fetches: bool
    fix: str


RECIPES: Dict[str, Recipe] = {
    "senteval": Recipe(
        "capsnmt.sentences.senteval",
        takes_files=True,
        fetches=True,
        fix="give --data DIR with SentEval's files, or no --data to download them",
    ),
    "probing_from_text": Recipe(
        "capsnmt.sentences.build",
        takes_files=False,
        fetches=False,
        fix="it is not among the tasks that can be built: give other --tasks",
    ),
    "propositions": Recipe(
        "capsnmt.sentences.logical_inference",
        takes_files=True,
        fetches=False,
        fix="give --data DIR with train0 .. train12 and test0 .. test12, or no --data to "
        "generate them",
    ),
}


def reads_sources(recipe: Optional[str]) -> bool:
    """Return whether the files of ``--data`` are read as they are."""
    return recipe not in RECIPES or RECIPES[recipe].takes_files


def batch(run: Run) -> Batch:
    """The sentences of an update, split over the run's devices."""
    wanted = run.settings.batch
    sentences, most = wanted.sentences_per_update or 0, wanted.max_sentences or 1
    return split_batch(sentences, most, run.device.workers, unit="sentences")


def warning(run: Run) -> Optional[str]:
    """Nothing: no sentence is too long."""
    return None


def results(run: Run) -> List[Path]:
    """The measures of the run, and the means over its seeds."""
    return [run.folder.result, run.folder.summary]


def prepare(run: Run) -> Optional[Step]:
    """Download, build or generate the files; ``None`` if the user provides them.

    Raises:
        ConfigurationError: there is no such recipe, or a flag is missing or has no effect.
    """
    data = run.settings.data
    if data.recipe is None or run.data.folder == run.sources:
        return None
    if data.recipe not in RECIPES:
        raise ConfigurationError(
            f"{run.config.row}: data.recipe: {data.recipe}: choose from {', '.join(RECIPES)}"
        )
    recipe, text = RECIPES[data.recipe], []
    if not recipe.takes_files:
        if run.sources is None:
            if run.data.manifest.is_file():  # built before; the text is needed no more
                return None
            raise ConfigurationError(
                f"{run.settings.dataset}: builds its tasks from text: give --data FILE, or the "
                f"folder that holds train.en"
            )
        text = [str(run.sources)]
    mirrors = [word for mirror in run.config.mirrors for word in ("--mirror", mirror)]
    if mirrors and not recipe.fetches:
        raise ConfigurationError(
            f"--mirror {mirrors[1]}: has no effect on {run.settings.dataset}, which downloads "
            f"nothing: drop it"
        )
    arguments = (*text, "--output", str(run.data.folder), *flags.argv(data.options), *mirrors)
    return Step("prepare", (run.data.manifest,), (), python(recipe.module), arguments)


def train(run: Run) -> Step:
    """The training."""
    probing = ["--probing-task", run.config.task] if run.config.task else []
    every_batch = ["--required-batch-size-multiple", "1"]
    user_dir = ["--user-dir", str(USER_DIR)]
    arguments = [str(run.data.folder), *user_dir, *probing, *run.cpu(), *every_batch]
    return train_step(run, arguments, batch(run))


def evaluation(run: Run) -> List[Step]:
    """All measures of the model, on validation and test."""
    arguments = (
        str(run.model),
        *("--data", str(run.data.folder), "--splits", "valid,test"),
        *("--json", str(run.folder.result), *run.cpu()),
    )
    program = python("capsnmt.sentences.evaluate")
    return [Step("evaluate", (run.folder.result,), (run.model, *_files(run)), program, arguments)]


def check_settings(run: Run) -> None:
    """Raise unless fairseq will understand each flag.

    Raises:
        ConfigurationError: naming the flag.
    """
    config, settings = run.config, run.settings
    others = {"average": settings.average, "generate": settings.generate, "score": settings.score}
    for section, value in others.items():
        if records.plain(value):
            raise ConfigurationError(
                f"{config.row}: {section}: has no effect on a sentence classifier: drop it"
            )
    if config.baseline is not None:
        raise ConfigurationError(
            f"--baseline {config.baseline}: has no effect on sentence classifiers, which are not "
            f"tested for significance: drop it"
        )
    if config.task is not None and settings.train.get("task") != "probing":
        raise ConfigurationError(
            f"--tasks {config.task}: {config.row} is not a probing experiment: drop it"
        )
    if config.task is not None:
        require_task(config.task)
    flags.check_settings(settings, config.row)
    flags.check_train(config.row, train(run).arguments)


def check_ready(run: Run) -> None:
    """Raise unless the user's data exists.

    Raises:
        ConfigurationError: naming the first file that is missing.
    """
    if prepare(run) is None:
        check_data(run)


def check_data(run: Run) -> List[Path]:
    """Check that all files of the task exist, and return them.

    Raises:
        ConfigurationError: naming the first that is missing.
    """
    for path in _files(run):
        if not path.is_file():
            recipe = RECIPES.get(run.settings.data.recipe or "")
            fix = "give another --data" if recipe is None else recipe.fix
            raise ConfigurationError(f"{path}: is missing: {fix}")
    return _files(run)


def _files(run: Run) -> List[Path]:
    """The files that the classifier is trained and tested on, plain or gzipped."""
    if run.config.task is not None:
        names = [require_task(run.config.task).file]
    else:
        numbers = range(MAX_OPERATORS + 1)
        names = [f"{part}{number}" for part in ("train", "test") for number in numbers]
    return [plain_or_gzipped(run.data.folder / name) for name in names]

"""The steps of a sentence classifier: prepare, evaluate the best checkpoint.

``train.task`` is ``probing``, with the probing task as a further axis, or ``logical_inference``.
"""

from pathlib import Path
from typing import List, Optional, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError, shown
from capsnmt.files import plain_or_gzipped
from capsnmt.launch import flags, training_step
from capsnmt.launch.run import Run, python
from capsnmt.sentences.build import build_parser
from capsnmt.sentences.examples import existing
from capsnmt.sentences.logical_inference import MAX_OPERATORS
from capsnmt.sentences.senteval import require_task
from capsnmt.steps import Step

DOWNLOADED = "senteval"
# data.recipe -> the module that makes the data
RECIPES = {
    DOWNLOADED: "capsnmt.sentences.senteval",
    "probing_from_text": "capsnmt.sentences.build",
    "propositions": "capsnmt.sentences.logical_inference",
}
FROM_TEXT = "probing_from_text"  # --data is its text; that of the others is the finished files


def prepare(run: Run) -> Optional[Step]:
    """Download, build or generate the files; ``None`` if the user provides them."""
    recipe = run.settings.data.recipe
    if recipe is None or run.data.folder == run.sources:
        return None
    if recipe not in RECIPES:
        raise ConfigurationError(f"data.recipe is {recipe}; choose from {', '.join(RECIPES)}")
    made, text = run.data.manifest.is_file(), []
    if not made and run.sources is None and all(path.is_file() for path in _files(run)):
        return None  # the user's: what this package makes has a manifest
    if recipe == FROM_TEXT:
        if made and (run.sources is None or not run.sources.exists()):  # it is needed no more
            _check_options(run)
            return None
        if run.sources is None:
            raise ConfigurationError(
                f"{run.settings.dataset} builds its tasks from text; give --data FILE, or the "
                f"folder that holds train.en"
            )
        text = [str(run.sources)]
    mirrors = [word for mirror in run.config.mirrors for word in ("--mirror", mirror)]
    options = flags.argv(run.settings.data.options)
    arguments = (*text, "--output", str(run.data.folder), *options, *mirrors)
    inputs = tuple(Path(file) for file in text)
    # D: as of a translation, a run that is resumed takes complete data, whatever became of the text
    known = (lambda: True) if text and made and run.resumed else None
    outputs, program = (run.data.manifest,), python(RECIPES[recipe])
    return Step("prepare", outputs, inputs, program, arguments, known=known)


def _check_options(run: Run) -> None:
    """Raise if tasks that were built have other options: without their text none is built anew."""
    given = ["text", "--output", "folder", *flags.argv(run.settings.data.options)]
    made = records.read(run.data.manifest, dict).get("arguments", given)
    known, now = (vars(build_parser().parse_args(words)) for words in (made, given))
    for name in sorted(now.keys() - {"text", "output"}):
        if known[name] != now[name]:
            raise ConfigurationError(
                f"data.options.{name} is {shown(now[name])}, but {run.data.folder} was built with "
                f"{shown(known[name])}; give --data with the text, and another --prepared"
            )


def evaluation(run: Run) -> List[Step]:
    """All measures of the model, on validation and test."""
    arguments = (
        str(run.model),
        *("--data", str(run.data.folder), "--splits", "valid,test"),
        *("--json", str(run.folder.result), *training_step.cpu(run)),
    )
    inputs, program = (run.model, *_files(run)), python("capsnmt.sentences.evaluate")
    return [Step("evaluate", (run.folder.result,), inputs, program, arguments)]


def check_settings(run: Run) -> None:
    """Raise if a baseline is given, which has no effect, or no checkpoint would be the best."""
    baseline = run.config.baseline
    if baseline is not None:
        raise ConfigurationError(
            f"--baseline {baseline} has no effect on a sentence classifier; drop it"
        )
    if run.settings.train.get("disable-validation"):
        raise ConfigurationError(
            "train.disable-validation leaves no checkpoint that is the best, and that is the one "
            "which is evaluated; drop it"
        )


def check_data(run: Run) -> Tuple[List[Path], List[Path]]:
    """Check that all files of the task exist: they identify the data, and are all that is read."""
    fix = "give --data DIR with all files of the task, or other --tasks or another --prepared"
    return [existing(path, fix) for path in _files(run)], []


def _files(run: Run) -> List[Path]:
    """The files that the classifier is trained and tested on, plain or gzipped."""
    if run.config.task is not None:
        names = [require_task(run.config.task).file]
    else:
        numbers = range(MAX_OPERATORS + 1)
        names = [f"{part}{number}" for part in ("train", "test") for number in numbers]
    return [plain_or_gzipped(run.data.folder / name) for name in names]

"""The preparation of a run's data: recipes of parallel corpora and of sentence classification."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List

from capsnmt.cli import ConfigurationError
from capsnmt.launch import flags
from capsnmt.launch.config import Experiment
from capsnmt.launch.run import RunData
from capsnmt.launch.stage import Stage, python


@dataclass(frozen=True)
class SentenceRecipe:
    """A command that makes the data of a sentence classifier.

    Attributes:
        module: the module to run.
        description: what it does.
        takes_files: whether ``--data`` names the finished files, which then need no preparation;
            otherwise it names the text that they are built from.
        fetches: whether it uses the network.
        fix: what to do when a file is missing.
    """

    module: str
    description: str
    takes_files: bool
    fetches: bool
    fix: str


SENTENCE_RECIPES: Dict[str, SentenceRecipe] = {
    "senteval": SentenceRecipe(
        "capsnmt.sentences.probing.download",
        "SentEval's ten probing tasks (Conneau et al. 2018)",
        takes_files=True,
        fetches=True,
        fix="give --data DIR with SentEval's files, or no --data to download them",
    ),
    "probing_from_text": SentenceRecipe(
        "capsnmt.sentences.probing.build",
        "SentLen, WC and BShift, built from text",
        takes_files=False,
        fetches=False,
        fix="it is not among the tasks that can be built: give other --tasks",
    ),
    "propositions": SentenceRecipe(
        "capsnmt.sentences.logical_inference.generate",
        "generated pairs of propositions in the form of Bowman et al. 2015",
        takes_files=True,
        fetches=False,
        fix="give --data DIR with train0 .. train12 and test0 .. test12, or no --data to "
        "generate them",
    ),
}


def sentence_data(experiment: Experiment, data: RunData) -> Stage:
    """Return the stage that makes the data of a sentence classifier.

    Raises:
        ConfigurationError: there is no such recipe, or a flag is missing or has no effect.
    """
    recipe = _sentence_recipe(experiment)
    text: List[str] = []
    if not recipe.takes_files:
        if data.local is None:
            raise ConfigurationError(
                f"{experiment['dataset']}: builds its tasks from text: give --data FILE, or the "
                f"folder that holds train.en"
            )
        text = [str(data.local)]
    fetching: List[str] = []
    if recipe.fetches:
        fetching = [word for mirror in data.mirrors for word in ("--mirror", mirror)]
        fetching += ["--offline"] if data.offline else []
    elif data.mirrors:
        raise ConfigurationError(
            f"--mirror {data.mirrors[0]}: has no effect on {experiment['dataset']}, which "
            f"downloads nothing: drop it"
        )
    options = flags.argv(experiment["data.options"] or {})
    arguments = (*text, "--output", str(data.folder), *options, *fetching)
    return Stage("prepare", python(recipe.module), arguments, outputs=(data.manifest,))


def describe_sentences(experiment: Experiment, folder: Path) -> List[str]:
    """Return what :func:`sentence_data` makes, for the plan."""
    return [f"{_sentence_recipe(experiment).description}, in {folder}"]


def _sentence_recipe(experiment: Experiment) -> SentenceRecipe:
    name = experiment["data.recipe"]
    if name not in SENTENCE_RECIPES:
        raise ConfigurationError(
            f"{experiment.where('data.recipe')}: data.recipe: {name}: choose from "
            f"{', '.join(SENTENCE_RECIPES)}"
        )
    return SENTENCE_RECIPES[name]


def describe_corpus(experiment: Experiment, pair: str, binarised: Path) -> List[str]:
    """Return what the recipe of a parallel corpus does, for the plan.

    Raises:
        ConfigurationError: there is no such recipe, or not for the languages.
    """
    from capsnmt.corpora.recipe import load_recipe

    try:
        recipe = load_recipe(experiment["data.recipe"], pair)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{experiment.where('data.recipe')}: data.recipe: {error}"
        ) from None
    corpus, segmentation = recipe.corpus, recipe.segmentation
    files = getattr(corpus, "files", None) or getattr(corpus, "packages", {})
    stand_ins = {getattr(file, "otherwise", None) for file in files.values()}
    limits = [f"{name} {limit}" for name, limit in vars(recipe.cleaning).items() if limit]
    tokenisers = ", ".join(f"{language} by {how}" for language, how in recipe.tokenisers.items())
    models = "one model" if segmentation.joint else "a model for each language"
    return [
        recipe.description,
        f"fetch {', '.join(name for name in files if name not in stand_ins)}",
        f"tokenise {tokenisers}; clean by {', '.join(limits) or 'nothing'}",
        f"segment by {segmentation.method} of {segmentation.size:,}, {models}",
        f"binarise {', '.join(recipe.splits)} to {binarised}",
    ]

"""What a run will do, as a script that a person can check and a shell can run."""

from __future__ import annotations

import shlex
import textwrap
from typing import Dict, List

from capsnmt.errors import ConfigurationError
from capsnmt.experiment import commands
from capsnmt.experiment.commands import Command, Run

_wrapper = textwrap.TextWrapper(
    width=100,
    initial_indent="#   ",
    subsequent_indent="#     ",
    break_long_words=False,
    break_on_hyphens=False,
)


def plan(run: Run) -> List[Command]:
    """All commands of a run in their order."""
    stages = [commands.prepare(run), commands.train(run), commands.average(run)]
    for test_set in run.test_sets:
        stages += [commands.generate(run, test_set), commands.score(run, test_set)]
    return [command for command in stages if command is not None]


def script(run: Run) -> str:
    """The commands of a run as a bash script that does the same without the launcher."""
    lines = ["#!/usr/bin/env bash", *header(run), "set -euo pipefail", *exports(run)]
    for command in plan(run):
        lines += ["", f"# {command.stage}"]
        lines += data_steps(run) if command.stage == "prepare" else []
        lines.append(command.shell())
    return "\n".join(lines) + "\n"


def header(run: Run) -> List[str]:
    """What the run is, how its update is split, and where its files will lie, as comments."""
    files: Dict[str, str] = {
        "data": f"{run.data.folder} (manifest.json tells how each file was made)",
        "training": f"{run.checkpoints}, train.log",
        "model": str(run.model),
        "results": f"{run.folder.scores}, {run.folder.summary}",
    }
    width = max(map(len, files))
    return [
        f"# {run.experiment.row}, seed {run.seed}, {run.device}",
        f"# {run.batch}",
        *([f"# {run.left_out}"] if run.left_out else []),
        *(f"# {what:{width}}  {where}" for what, where in files.items()),
    ]


def exports(run: Run) -> List[str]:
    """The variables of the commands, as lines of a script."""
    variables = commands.environment(run.device)
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def data_steps(run: Run) -> List[str]:
    """What the recipe of the data does, as comments; nothing where the tools for it are missing.

    Raises:
        ConfigurationError: there is no such recipe, or not for the languages.
    """
    try:
        from capsnmt.corpora.recipe import load_recipe
    except ImportError:
        return []
    data = run.experiment["data"]
    try:
        recipe = load_recipe(data["recipe"], f"{data['source-lang']}-{data['target-lang']}")
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{run.experiment.where('data.recipe')}: data.recipe: {error}"
        ) from None
    corpus, segmentation = recipe.corpus, recipe.segmentation
    files = getattr(corpus, "files", None) or getattr(corpus, "packages", {})
    stand_ins = {getattr(file, "otherwise", None) for file in files.values()}
    limits = [f"{name} {limit}" for name, limit in vars(recipe.cleaning).items() if limit]
    tokenisers = ", ".join(f"{language} by {how}" for language, how in recipe.tokenisers.items())
    models = "one model" if segmentation.joint else "a model for each language"
    steps = [
        recipe.description,
        f"fetch {', '.join(name for name in files if name not in stand_ins)}",
        f"tokenise {tokenisers}; clean by {', '.join(limits) or 'nothing'}",
        f"segment by {segmentation.method} of {segmentation.size:,}, {models}",
        f"binarise {', '.join(recipe.splits)} to {run.data.folder / 'bin'}",
    ]
    return [line for step in steps for line in _wrapper.wrap(step)]

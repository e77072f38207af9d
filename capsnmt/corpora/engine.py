"""The engine: run a recipe's steps, skipping those that are complete and unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.binarise import fairseq_subsets
from capsnmt.corpora.console import say
from capsnmt.corpora.manifest import NAME, Manifest, Step, load
from capsnmt.corpora.prepared import PreparedData
from capsnmt.corpora.recipe import Recipe
from capsnmt.corpora.sources import Store
from capsnmt.corpora.steps import Preparation
from capsnmt.files import locked, publish, remove, temporary_path


@dataclass(frozen=True)
class Options:
    """How a recipe is prepared.

    Attributes:
        local: folder that holds the source files, instead of fetching them.
        offline: never use the network.
        mirrors: URLs of folders that are tried first for every source file.
        workers: number of processes.
        command: the command line, for the manifest.
        verify: read every file again, also those that look unchanged.
    """

    local: Path | None = None
    offline: bool = False
    mirrors: Sequence[str] = ()
    workers: int = 1
    command: str = ""
    verify: bool = False


def prepare(recipe: Recipe, folder: Path, options: Options) -> Path:
    """Prepare ``recipe`` in ``folder`` and return the data-bin.

    Args:
        recipe: what to prepare.
        folder: the output; may hold an earlier preparation of the recipe, complete or not.
        options: how.

    Raises:
        ConfigurationError: bad input; no partial output remains.
        ExecutionError: a download or fairseq-preprocess failed; no partial output remains.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = f"waiting for another process that prepares {folder}"
    with locked(folder / ".lock", "", math.inf, waiting, say):
        header = {
            "recipe": recipe.name,
            "description": recipe.description,
            "pair": recipe.pair,
            "command": options.command,
            "subsets": fairseq_subsets(recipe.splits),
            "segmentation": dict(vars(recipe.segmentation)),
        }
        old = load(folder)
        for key in ("recipe", "pair"):
            if old.get(key, header[key]) != header[key]:
                raise ConfigurationError(
                    f"--output {folder} holds {key} {old[key]}, not {header[key]}: "
                    f"give another folder"
                )
        say(f"{recipe.name} {recipe.pair}: {recipe.description}")
        if recipe.corpus.warning():
            say(f"WARNING: {recipe.corpus.warning()}")
        manifest = Manifest(folder, header, options.verify)
        preparation = Preparation(recipe, folder, options.workers)
        steps = _complete_steps(preparation, manifest) if options.local is None else None
        if steps is None:
            steps = list(preparation.steps(_fetch(recipe, manifest, options)))
        run_steps(steps, manifest)
    return PreparedData(folder).binarised


def _complete_steps(preparation: Preparation, manifest: Manifest) -> list[Step] | None:
    """Return the steps if all are complete with the sources on record; ``None`` otherwise.

    **D**: data that is complete stays complete without its sources: the user need not repeat
    ``--local``, and may delete the fetched files.
    """
    if not (manifest.folder / NAME).exists():
        return None
    # inputs are recorded by name; the outputs of the extraction are in the order of the archives
    archives = manifest.recorded_settings("extract").get("members", {})
    names = dict.fromkeys([*archives, *manifest.recorded_inputs("raw")])
    sources = {name: manifest.folder / "sources" / name for name in names}
    steps = list(preparation.steps(sources))
    # they differ if an archive took the place of a plain file
    same = [step.name for step in steps] == list(manifest.steps)
    return steps if same and all(manifest.is_complete(step) for step in steps) else None


def run_steps(steps: list[Step], manifest: Manifest) -> None:
    """Run the steps that are not complete; record each as soon as it is done."""
    for number, step in enumerate(steps, 1):
        label = f"[{number}/{len(steps)}] {step.name}"
        if manifest.is_complete(step):
            say(f"{label}: complete, skipped")
            continue
        say(label)
        manifest.reopen()
        outputs = [manifest.folder / output for output in step.outputs]
        unfinished = [temporary_path(path) for path in outputs]
        for output, path in zip(outputs, unfinished):
            output.parent.mkdir(parents=True, exist_ok=True)
            remove(path)
        try:
            notes = step.run(unfinished)
            for output, path in zip(outputs, unfinished):
                publish(path, output)
        finally:
            for path in unfinished:
                remove(path)
        manifest.record(step, notes)
        manifest.save()
    manifest.close([step.name for step in steps])


def _fetch(recipe: Recipe, manifest: Manifest, options: Options) -> Mapping[str, Path]:
    store = Store(
        folder=manifest.folder / "sources",
        local=options.local,
        offline=options.offline,
        mirrors=options.mirrors,
        first_use={name: str(source["sha256"]) for name, source in manifest.sources.items()},
        note=manifest.record_source,
        match=manifest.checksums.match,
    )
    return recipe.corpus.fetch(store, recipe.languages)

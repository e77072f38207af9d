"""The engine: a recipe's steps, each skipped when its outputs are whole and nothing changed."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from capsnmt.corpora.binarise import fairseq_subsets
from capsnmt.corpora.errors import PreparationError
from capsnmt.corpora.files import beside, publish, remove
from capsnmt.corpora.manifest import Manifest, Step, load
from capsnmt.corpora.progress import say
from capsnmt.corpora.recipe import Recipe
from capsnmt.corpora.sources import Store
from capsnmt.corpora.steps import Preparation


def run_steps(steps: list[Step], manifest: Manifest) -> None:
    """Run those of `steps` that are not whole; each is recorded as soon as it is done."""
    for number, step in enumerate(steps, 1):
        label = f"[{number}/{len(steps)}] {step.name}"
        if manifest.is_whole(step):
            say(f"{label}: whole, skipped")
            continue
        say(label)
        manifest.reopen()
        outputs = [manifest.folder / output for output in step.outputs]
        parts = [beside(path) for path in outputs]
        for path, part in zip(outputs, parts):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove(part)
        try:
            notes = step.run(parts)
            for part, path in zip(parts, outputs):
                publish(part, path)
        finally:
            for part in parts:
                remove(part)
        manifest.record(step, notes)
        manifest.save()
    manifest.close([step.name for step in steps])


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Let only one process prepare `folder` at a time; the others wait."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that prepares {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Options:
    """How a recipe is prepared.

    Attributes:
        local: where the source files lie already, instead of fetching them.
        offline: never touch the network.
        mirrors: addresses of folders that are asked first for every source file.
        workers: processes.
        command: the command line, for the manifest.
    """

    local: Path | None = None
    offline: bool = False
    mirrors: Sequence[str] = ()
    workers: int = 1
    command: str = ""


def prepare(recipe: Recipe, folder: Path, options: Options) -> Path:
    """Prepare `recipe` in `folder` and return the data-bin.

    Args:
        recipe: what to prepare.
        folder: the output; may hold an earlier, unfinished or whole, preparation of the recipe.
        options: how.

    Raises:
        PreparationError: bad input; nothing half-written is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
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
                raise PreparationError(
                    f"--output {folder} holds {key} {old[key]}, not {header[key]}: "
                    f"give another folder"
                )
        say(f"{recipe.name} {recipe.pair}: {recipe.description}")
        if recipe.corpus.warning():
            say(f"WARNING: {recipe.corpus.warning()}")
        manifest = Manifest(folder, header)
        sources = _fetch(recipe, manifest, options)
        run_steps(list(Preparation(recipe, folder, options.workers).steps(sources)), manifest)
    return folder / "bin"


def _fetch(recipe: Recipe, manifest: Manifest, options: Options) -> Mapping[str, Path]:
    first_use = {name: str(told["sha256"]) for name, told in manifest.sources.items()}
    store = Store(
        manifest.folder / "sources",
        options.local,
        options.offline,
        options.mirrors,
        first_use,
        manifest.record_source,
    )
    return recipe.corpus.fetch(store, recipe.languages)

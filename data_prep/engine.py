"""The engine: a recipe's steps, each skipped when its outputs are whole and nothing changed."""

from __future__ import annotations

import fcntl
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_prep.binarise import binarise, binarise_command, fairseq_subsets
from data_prep.errors import PreparationError
from data_prep.files import (
    beside,
    publish,
    read_lines,
    read_pairs,
    remove,
    write_lines,
    write_pairs,
)
from data_prep.manifest import Manifest, Step, load
from data_prep.parallel import LineFunction, map_lines
from data_prep.progress import say, watched
from data_prep.recipe import Recipe
from data_prep.segmentation import learn, make_segmenter
from data_prep.text import make_tokeniser

CODES = "bpe/codes"
BYTES_WORTH_A_WORKER = 1 << 18


class Preparation:
    """The steps of one recipe into one output folder.

    Layout of the folder: ``sources/`` what was fetched; ``raw/SPLIT.LANGUAGE`` text as it was
    published, which scores are computed against; ``tokenised/``; ``clean/`` the training pairs
    kept; ``bpe/`` segmented text and the ``codes``; ``bin/`` the fairseq data-bin; and
    ``manifest.json``.
    """

    def __init__(self, recipe: Recipe, folder: Path, workers: int):
        self.recipe, self.folder, self.workers = recipe, folder, workers
        self.languages = recipe.source, recipe.target

    def names(self, stage: str, split: str) -> tuple[str, str]:
        """Return the two files of a split, relative to the output folder."""
        source, target = self.languages
        return f"{stage}/{split}.{source}", f"{stage}/{split}.{target}"

    def _inputs(self, *names: str) -> dict[str, Path]:
        return {name: self.folder / name for name in names}

    def raw(self, sources: Mapping[str, Path]) -> Step:
        """Read the sources: every split as two line-aligned files of text."""
        recipe = self.recipe
        outputs = tuple(name for split in recipe.splits for name in self.names("raw", split))

        def run(paths: list[Path]) -> Mapping[str, Any]:
            pairs, notes = recipe.corpus.pairs(sources, *self.languages)
            for number, split in enumerate(recipe.splits):
                source, target = paths[2 * number : 2 * number + 2]
                write_pairs(source, target, watched(pairs[split], split))
            return notes

        settings = {"pair": recipe.pair, **recipe.corpus.settings()}
        return Step("raw", sources, outputs, settings, run, recipe.corpus.tools)

    def _each_line(
        self,
        name: str,
        read: str,
        write: str,
        make: Callable[..., LineFunction],
        arguments: tuple[str, ...],
        settings: Mapping[str, Any],
        tools: tuple[str, ...],
        models: tuple[str, ...] = (),
    ) -> Step:
        """Return a step that writes ``make(*arguments)(line)`` for every line of a file."""

        def run(paths: list[Path]) -> None:
            path = self.folder / read
            workers = min(self.workers, 1 + path.stat().st_size // BYTES_WORTH_A_WORKER)
            lines = watched(read_lines(path), write)
            write_lines(paths[0], map_lines(make, arguments, lines, workers))

        return Step(name, self._inputs(read, *models), (write,), settings, run, tools)

    def tokenise(self, split: str, language: str) -> Step:
        """Normalise and tokenise one file."""
        file, tokeniser = f"{split}.{language}", self.recipe.tokenisers[language]
        return self._each_line(
            f"tokenise {file}",
            f"raw/{file}",
            f"tokenised/{file}",
            make_tokeniser,
            (tokeniser, language),
            settings={"tokeniser": tokeniser, "language": language},
            tools=("sacremoses", "jieba"),
        )

    def clean(self) -> Step:
        """Drop training pairs that teach nothing; valid and test stay as they are."""
        read, limits = self.names("tokenised", "train"), self.recipe.cleaning

        def run(paths: list[Path]) -> dict[str, Any]:
            counts: Counter[str] = Counter()
            pairs = read_pairs(*(self.folder / name for name in read))
            kept = limits.kept(watched(pairs, "clean"), counts)
            write_pairs(paths[0], paths[1], kept)
            if not counts["kept"]:
                raise PreparationError(
                    f"cleaning leaves no training pair of {self.recipe.name}: {dict(counts)} with "
                    f"{limits}: widen the recipe's limits or give more data"
                )
            return {"pairs": dict(sorted(counts.items()))}

        outputs = self.names("clean", "train")
        return Step("clean train", self._inputs(*read), outputs, vars(limits), run)

    def learn_bpe(self) -> Step:
        """Learn joint BPE on the clean training text only."""
        texts, merges = self.names("clean", "train"), self.recipe.bpe_merges

        def run(paths: list[Path]) -> None:
            learn([self.folder / name for name in texts], paths[0], merges)

        settings = {"merges": merges}
        return Step("learn bpe", self._inputs(*texts), (CODES,), settings, run, ("subword-nmt",))

    def apply_bpe(self, split: str, language: str) -> Step:
        """Segment one file."""
        file, stage = f"{split}.{language}", "clean" if split == "train" else "tokenised"
        return self._each_line(
            f"apply bpe {file}",
            f"{stage}/{file}",
            f"bpe/{file}",
            make_segmenter,
            (str(self.folder / CODES),),
            settings={},
            tools=("subword-nmt",),
            models=(CODES,),
        )

    def binarise(self) -> Step:
        """Make the fairseq data-bin."""
        splits = self.recipe.splits
        texts = [name for split in splits for name in self.names("bpe", split)]

        def command(destination: Path) -> list[str]:
            text = self.folder / "bpe"
            return binarise_command(text, splits, *self.languages, destination, self.workers)

        return Step(
            "binarise",
            self._inputs(*texts),
            ("bin",),
            {"joined_dictionary": True},
            lambda paths: binarise(command(paths[0]), paths[0]),
            ("fairseq", "ve-fairseq", "torch"),
            shlex.join(command(self.folder / "bin")),
        )

    def steps(self, sources: Mapping[str, Path]) -> Iterator[Step]:
        """Yield all steps in order."""
        files = [(split, language) for split in self.recipe.splits for language in self.languages]
        yield self.raw(sources)
        yield from (self.tokenise(*file) for file in files)
        yield self.clean()
        yield self.learn_bpe()
        yield from (self.apply_bpe(*file) for file in files)
        yield self.binarise()


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


def prepare(
    recipe: Recipe, folder: Path, local: Path | None, offline: bool, workers: int, command: str
) -> Path:
    """Prepare `recipe` in `folder` and return the data-bin.

    Args:
        recipe: what to prepare.
        folder: the output; may hold an earlier, unfinished or whole, preparation of the recipe.
        local: where the source files lie already, instead of fetching them.
        offline: never touch the network.
        workers: processes.
        command: the command line, for the manifest.

    Raises:
        PreparationError: bad input; nothing half-written is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        header = {
            "recipe": recipe.name,
            "description": recipe.description,
            "pair": recipe.pair,
            "command": command,
            "subsets": fairseq_subsets(recipe.splits),
        }
        old = load(folder)
        for key in ("recipe", "pair"):
            if old.get(key, header[key]) != header[key]:
                raise PreparationError(
                    f"--output {folder} holds {key} {old[key]}, not {header[key]}: "
                    f"give another folder"
                )
        say(f"{recipe.name} {recipe.pair}: {recipe.description}")
        sources = recipe.corpus.fetch(folder / "sources", local, offline)
        steps = list(Preparation(recipe, folder, workers).steps(sources))
        run_steps(steps, Manifest(folder, header))
    return folder / "bin"

"""The steps of a preparation: the inputs, outputs and settings of each."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.archive import is_archive, unpack
from capsnmt.corpora.binarise import binarise, binarise_command
from capsnmt.corpora.blocks import LineFunction, cut, map_blocks, map_lines, write_parts
from capsnmt.corpora.cleaning import make_cleaner, make_digester, make_limiter
from capsnmt.corpora.console import say, watched
from capsnmt.corpora.duplicates import mark_repeated
from capsnmt.corpora.lines import read_lines
from capsnmt.corpora.manifest import Step
from capsnmt.corpora.parallel import map_items
from capsnmt.corpora.recipe import Recipe
from capsnmt.corpora.segmentation import make_segmenter
from capsnmt.corpora.text import make_tokeniser
from capsnmt.files import remove, temporary_path
from capsnmt.lines import blank_lines


def _make_unpacker() -> Callable[[tuple[Path, list[str], Path]], None]:
    return lambda job: unpack(*job)


class Preparation:
    """The steps of one recipe into one output folder.

    Layout of the folder: ``sources/`` fetched files; ``extracted/ARCHIVE/`` unpacked members;
    ``raw/SPLIT.LANGUAGE`` text as published, to score against; ``tokenised/``; ``clean/`` the
    training pairs kept; ``bpe/`` segmented text and the model; ``limited/`` the segmented training
    pairs within ``max_subwords``, if the recipe sets it; ``bin/`` the fairseq data-bin; and
    ``manifest.json``.
    """

    def __init__(self, recipe: Recipe, folder: Path, workers: int) -> None:
        self.recipe, self.folder, self.workers = recipe, folder, workers
        self.languages = recipe.languages

    def names(self, stage: str, split: str) -> tuple[str, str]:
        """Return the two files of a split, relative to the output folder."""
        source, target = self.languages
        return f"{stage}/{split}.{source}", f"{stage}/{split}.{target}"

    def _inputs(self, *names: str) -> dict[str, Path]:
        return {name: self.folder / name for name in names}

    def extract(self, archives: Mapping[str, Path]) -> Step:
        """Unpack the members that the recipe needs, from several archives at the same time."""
        patterns = {name: self.recipe.corpus.members(name, self.languages) for name in archives}

        def run(paths: list[Path]) -> None:
            jobs = [
                (path, patterns[name], folder)
                for (name, path), folder in zip(archives.items(), paths)
            ]
            for _ in map_items(_make_unpacker, (), jobs, self.workers):
                pass

        outputs = tuple(f"extracted/{name}" for name in archives)
        return Step("extract", archives, outputs, {"members": patterns}, run)

    def raw(self, sources: Mapping[str, Path]) -> Step:
        """Read the sources: every split as two line-aligned files of text."""
        recipe = self.recipe
        outputs = tuple(name for split in recipe.splits for name in self.names("raw", split))

        def run(paths: list[Path]) -> Mapping[str, Any]:
            parts, notes = recipe.corpus.parts(sources, *self.languages, self.workers)
            for number, split in enumerate(recipe.splits):
                written = write_parts(paths[2 * number : 2 * number + 2], parts[split], split)
                if not written.lines:
                    names = " and ".join(f"{split}.{language}" for language in self.languages)
                    raise ConfigurationError(f"{recipe.name}: {names} are empty: give other files")
                expected = recipe.corpus.lines.get(split, written.lines)
                if written.lines != expected:
                    say(
                        f"  WARNING: {split} has {written.lines:,} pairs, and {expected:,} in the "
                        f"papers"
                    )
                if split != "train":  # cleaning drops blank lines of the training set
                    for path, language in zip(paths[2 * number :], self.languages):
                        name = f"{split}.{language}"
                        blank = blank_lines([*read_lines(path)], f"{recipe.name}: {name}")
                        if blank:
                            say(f"  WARNING: {blank:,} lines of {name} are blank")
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
            write_parts(paths, map_lines(make, arguments, self.folder / read, self.workers), write)

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
        """Drop useless training pairs; the validation and test sets stay unchanged."""
        read, limits = self.names("tokenised", "train"), self.recipe.cleaning

        def run(paths: list[Path]) -> dict[str, Any]:
            blocks = cut(*(self.folder / name for name in read))
            scratch, repeated = temporary_path(paths[0].parent / "duplicates"), None
            remove(scratch)
            try:
                if limits.deduplicate:
                    digests = map_items(make_digester, (limits,), blocks, self.workers)
                    seen = watched(digests, "duplicates", "blocks")
                    repeated = mark_repeated(seen, sum(block.lines for block in blocks), scratch)
                kept = map_blocks(make_cleaner, (limits, repeated), blocks, self.workers)
                return self._kept(write_parts(paths, kept, "clean").counts)
            finally:
                remove(scratch)

        outputs, settings = self.names("clean", "train"), dict(vars(limits))
        del settings["max_subwords"]
        return Step("clean train", self._inputs(*read), outputs, settings, run)

    def _kept(self, counts: Counter[str]) -> dict[str, Any]:
        if not counts["kept"]:
            raise ConfigurationError(
                f"cleaning leaves no training pair of {self.recipe.name}: {dict(counts)} with "
                f"{self.recipe.cleaning}: widen the recipe's limits or give more data"
            )
        return {"pairs": dict(sorted(counts.items()))}

    def take(self, codes: Path) -> Step:
        """Take the merges that are published with the text."""

        def run(paths: list[Path]) -> None:
            with paths[0].open("w", encoding="utf-8", newline="\n") as stream:
                stream.writelines(f"{line}\n" for line in read_lines(codes))

        outputs = (self._model(self.languages[0]),)
        return Step("take subwords", {self.recipe.corpus.codes: codes}, outputs, {}, run)

    def learn(self) -> Step:
        """Learn subwords from the clean training text, for each language or for both."""
        segmentation = self.recipe.segmentation
        texts: dict[str, list[str]] = {}
        for language in self.languages:
            texts.setdefault(self._model(language), []).append(f"clean/train.{language}")

        def run(paths: list[Path]) -> None:
            files = [[self.folder / name for name in names] for names in texts.values()]
            segmentation.learn(dict(zip(paths, files)), self.workers)

        settings = {"method": segmentation.method, "size": segmentation.size}
        return Step(
            "learn subwords",
            self._inputs(*chain.from_iterable(texts.values())),
            tuple(texts),
            {**settings, "texts": texts},
            run,
            (segmentation.tool,),
        )

    def _model(self, language: str) -> str:
        return f"bpe/{self.recipe.segmentation.model(language)}"

    def segment(self, split: str, language: str) -> Step:
        """Segment one file."""
        file, model = f"{split}.{language}", self._model(language)
        segmentation = self.recipe.segmentation
        return self._each_line(
            f"segment {file}",
            f"clean/{file}" if split == "train" else f"tokenised/{file}",
            f"bpe/{file}",
            make_segmenter,
            (segmentation.method, str(self.folder / model)),
            settings={},
            tools=(segmentation.tool,),
            models=(model,),
        )

    def limit(self) -> Step:
        """Drop training pairs with too many subwords."""
        read, limits = self.names("bpe", "train"), self.recipe.cleaning

        def run(paths: list[Path]) -> dict[str, Any]:
            blocks = cut(*(self.folder / name for name in read))
            kept = map_blocks(make_limiter, (limits,), blocks, self.workers)
            return self._kept(write_parts(paths, kept, "limit").counts)

        settings = {"max_subwords": limits.max_subwords}
        return Step(
            "limit train", self._inputs(*read), self.names("limited", "train"), settings, run
        )

    def binarise(self) -> Step:
        """Make the fairseq data-bin."""
        stages = dict.fromkeys(self.recipe.splits, "bpe")
        if self.recipe.cleaning.max_subwords:
            stages["train"] = "limited"
        joint = self.recipe.segmentation.joint

        def command(destination: Path) -> list[str]:
            prefixes = {split: self.folder / stage / split for split, stage in stages.items()}
            return binarise_command(prefixes, self.languages, destination, self.workers, joint)

        return Step(
            "binarise",
            self._inputs(*(name for split in stages for name in self.names(stages[split], split))),
            ("bin",),
            {"joined_dictionary": joint},
            lambda paths: binarise(command(paths[0]), paths[0]),
            ("fairseq", "ve-fairseq", "torch"),
            shlex.join(command(self.folder / "bin")),
        )

    def steps(self, sources: Mapping[str, Path]) -> Iterator[Step]:
        """Yield all steps in order."""
        files = [(split, language) for split in self.recipe.splits for language in self.languages]
        archives = {
            name: path
            for name, path in sources.items()
            if self.recipe.corpus.members(name, self.languages) and is_archive(path)
        }
        if archives:
            yield self.extract(archives)
        unpacked = {name: self.folder / "extracted" / name for name in archives}
        yield self.raw({**sources, **unpacked})
        yield from (self.tokenise(*file) for file in files)
        yield self.clean()
        codes = self.recipe.corpus.codes
        yield self.take(sources[codes]) if codes else self.learn()
        yield from (self.segment(*file) for file in files)
        if self.recipe.cleaning.max_subwords:
            yield self.limit()
        yield self.binarise()

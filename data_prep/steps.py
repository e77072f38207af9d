"""The steps of a preparation: what each reads, writes and depends on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep.archive import is_archive, unpack
from data_prep.binarise import binarise, binarise_command
from data_prep.cleaning import Pair
from data_prep.duplicates import without_duplicates
from data_prep.errors import PreparationError
from data_prep.files import read_lines, read_pairs, write_lines, write_pairs
from data_prep.manifest import Step
from data_prep.parallel import LineFunction, map_lines
from data_prep.progress import say, watched
from data_prep.recipe import Recipe
from data_prep.segmentation import make_segmenter
from data_prep.text import make_tokeniser

BYTES_WORTH_A_WORKER = 1 << 18


class Preparation:
    """The steps of one recipe into one output folder.

    Layout of the folder: ``sources/`` what was fetched; ``extracted/ARCHIVE/`` the members that are
    needed; ``raw/SPLIT.LANGUAGE`` text as it was published, which scores are computed against;
    ``tokenised/``; ``clean/`` the training pairs kept; ``bpe/`` segmented text and the model;
    ``limited/`` the segmented training pairs within ``max_subwords``, if the recipe has it;
    ``bin/`` the fairseq data-bin; and ``manifest.json``.
    """

    def __init__(self, recipe: Recipe, folder: Path, workers: int):
        self.recipe, self.folder, self.workers = recipe, folder, workers
        self.languages = recipe.languages

    def names(self, stage: str, split: str) -> tuple[str, str]:
        """Return the two files of a split, relative to the output folder."""
        source, target = self.languages
        return f"{stage}/{split}.{source}", f"{stage}/{split}.{target}"

    def _inputs(self, *names: str) -> dict[str, Path]:
        return {name: self.folder / name for name in names}

    def extract(self, name: str, archive: Path) -> Step:
        """Unpack what the recipe needs of the archive that is the source `name`."""
        patterns = self.recipe.corpus.members(name, self.languages)
        return Step(
            f"extract {name}",
            {archive.name: archive},
            (f"extracted/{name}",),
            {"members": patterns},
            lambda paths: unpack(archive, patterns, paths[0]),
        )

    def raw(self, sources: Mapping[str, Path]) -> Step:
        """Read the sources: every split as two line-aligned files of text."""
        recipe = self.recipe
        outputs = tuple(name for split in recipe.splits for name in self.names("raw", split))

        def run(paths: list[Path]) -> Mapping[str, Any]:
            pairs, notes = recipe.corpus.pairs(sources, *self.languages)
            for number, split in enumerate(recipe.splits):
                source, target = paths[2 * number : 2 * number + 2]
                lines = write_pairs(source, target, watched(pairs[split], split))
                expected = recipe.corpus.lines.get(split, lines)
                if lines != expected:
                    say(f"  WARNING: {split} has {lines:,} pairs, the papers' has {expected:,}")
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

            def kept() -> Iterator[Pair]:
                counts.clear()
                pairs = read_pairs(*(self.folder / name for name in read))
                return limits.kept(watched(pairs, "clean"), counts)

            unique = without_duplicates(kept, paths[0].parent, counts)
            write_pairs(paths[0], paths[1], unique if limits.deduplicate else kept())
            return self._kept(counts)

        outputs, settings = self.names("clean", "train"), dict(vars(limits))
        del settings["max_subwords"]
        return Step("clean train", self._inputs(*read), outputs, settings, run)

    def _kept(self, counts: Counter[str]) -> dict[str, Any]:
        if not counts["kept"]:
            raise PreparationError(
                f"cleaning leaves no training pair of {self.recipe.name}: {dict(counts)} with "
                f"{self.recipe.cleaning}: widen the recipe's limits or give more data"
            )
        return {"pairs": dict(sorted(counts.items()))}

    def learn(self, *languages: str) -> Step:
        """Learn subwords of `languages` on the clean training text only."""
        texts = [f"clean/train.{language}" for language in languages]
        segmentation, model = self.recipe.segmentation, self._model(languages[0])

        def run(paths: list[Path]) -> None:
            segmentation.learn([self.folder / name for name in texts], paths[0], self.workers)

        name = "learn subwords" if segmentation.joint else f"learn subwords {languages[0]}"
        settings = {"method": segmentation.method, "size": segmentation.size}
        return Step(name, self._inputs(*texts), (model,), settings, run, (segmentation.tool,))

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
        """Drop training pairs of too many subwords."""
        read, limits = self.names("bpe", "train"), self.recipe.cleaning

        def run(paths: list[Path]) -> dict[str, Any]:
            counts: Counter[str] = Counter()
            pairs = watched(read_pairs(*(self.folder / name for name in read)), "limit")
            write_pairs(paths[0], paths[1], limits.kept_subwords(pairs, counts))
            return self._kept(counts)

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
        texts = dict(sources)
        for name, path in sources.items():
            if self.recipe.corpus.members(name, self.languages) and is_archive(path):
                yield self.extract(name, path)
                texts[name] = self.folder / "extracted" / name
        yield self.raw(texts)
        yield from (self.tokenise(*file) for file in files)
        yield self.clean()
        if self.recipe.segmentation.joint:
            yield self.learn(*self.languages)
        else:
            yield from (self.learn(language) for language in self.languages)
        yield from (self.segment(*file) for file in files)
        if self.recipe.cleaning.max_subwords:
            yield self.limit()
        yield self.binarise()

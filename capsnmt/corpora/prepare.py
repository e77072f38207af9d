"""The preparation of a corpus: its steps, from published files or the user's to a data-bin."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from msgspec.structs import replace

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora import binarise as fairseq
from capsnmt.corpora import subwords
from capsnmt.corpora.cleaning import fault_of, too_long, write_kept
from capsnmt.corpora.console import say, watched
from capsnmt.corpora.formats import read_lines
from capsnmt.corpora.parallel import chunk_of, lines_of, map_chunks, read_chunks
from capsnmt.corpora.prepared import DataManifest, FileRecord, PreparedData
from capsnmt.corpora.raw import write_raw
from capsnmt.corpora.recipe import Cleaning, Recipe
from capsnmt.corpora.sources import Address, download, has_checksum, local_file
from capsnmt.corpora.text import LOWERCASE, make_tokeniser
from capsnmt.files import installed_version, locked, remove, sha256, temporary_path
from capsnmt.steps import Step, StepRecords, run_steps

TOOLS = ("sacremoses", "jieba", "subword-nmt", "sentencepiece", "fairseq", "ve-fairseq", "torch")
STEPS = ".steps.json"


@dataclass(frozen=True)
class Preparation:
    """The preparation of one corpus in one folder.

    Layout of the folder: ``sources/`` fetched files; ``raw/SPLIT.LANGUAGE`` text as published, to
    score against; ``tokenised/``; ``clean/`` the training pairs kept; ``bpe/`` segmented text and
    the model; ``limited/`` the segmented training pairs within ``max-subwords``, if the recipe sets
    it; ``bin/`` the fairseq data-bin; and ``manifest.json``.

    Attributes:
        recipe: the corpus.
        folder: the output.
        local: folder that holds the source files, instead of fetching them.
        mirrors: URLs of folders that are tried first for every source file.
        workers: number of processes.
        command: the command line, for the manifest.
    """

    recipe: Recipe
    folder: Path
    local: Optional[Path] = None
    mirrors: Tuple[str, ...] = ()
    workers: int = 1
    command: str = ""

    # sources

    def source(self, name: str) -> Path:
        """Return the path of a source file."""
        if self.local is not None:
            return local_file(self.local, name)
        return self.folder / "sources" / name

    def _fetch(self, name: str) -> Step:
        """Fetch a source file."""
        source, recipe = self.recipe.source(name), self.recipe
        addresses = [Address((f"{folder.rstrip('/')}/{name}",)) for folder in self.mirrors]
        addresses += [Address((url,) if isinstance(url, str) else url) for url in source.urls]
        addresses += [Address((f"{folder.rstrip('/')}/{name}",)) for folder in recipe.mirrors]
        addresses = [each._replace(checksum=source.checksum) for each in addresses]
        addresses += [Address((url,)) for url in source.repacked]
        fix = "fetch it by other means and give its folder with --local"
        if len(recipe.training_corpora()) > 1:
            corpora = ", ".join(sorted(recipe.training_corpora()))
            fix += f", or leave out a training corpus: --corpora with some of {corpora}"
        return Step(
            f"fetch {name}",
            (self.folder / "sources" / name,),
            function=lambda paths: download(paths[0], name, addresses, fix),
            settings=source.checksum,
        )

    def _check_local(self) -> None:
        """Note which of the user's files are not the published ones."""
        for name in self.recipe.needed():
            path, expected = self.source(name), self.recipe.source(name).checksum
            # D: other versions are allowed, but are never passed off as the published one.
            if expected and path.name == name and not has_checksum(path, expected):
                say(f"  note: {path} is not the published file (checksum differs); used as is")

    # raw text

    def _files(self, stage: str, split: str) -> Tuple[Path, Path]:
        """Return the two files of a split."""
        source, target = self.recipe.languages
        folder = self.folder / stage
        return folder / f"{split}.{source}", folder / f"{split}.{target}"

    def _raw(self) -> Step:
        """Read the sources: every split as two line-aligned files of text."""
        sources = {name: self.source(name) for name in self.recipe.needed()}
        scratch = temporary_path(self.folder / "unpacked")

        def run(paths: List[Path]) -> None:
            remove(scratch)
            try:
                write_raw(self.recipe, sources, paths, scratch, self.workers)
            finally:
                remove(scratch)

        recipe = self.recipe.decisive()
        return Step(
            "raw",
            tuple(path for split in self.recipe.subsets for path in self._files("raw", split)),
            tuple(sources.values()),
            function=run,
            settings=[recipe.get(key) for key in ("pair", "splits", "held-out", "lowercase")],
        )

    # what each line becomes

    def tokeniser(self, language: str) -> str:
        """Return the tokeniser of a language, as translation uses it."""
        name = self.recipe.tokenisers[language]
        return f"{name}-{LOWERCASE}" if self.recipe.lowercase else name

    def _each_chunk(
        self,
        name: str,
        files: Tuple[str, str],
        function: Callable[..., bytes],
        arguments: Callable[[], Tuple[Any, ...]],
        models: Tuple[Path, ...] = (),
        settings: Any = None,
    ) -> Step:
        """Return a step that writes ``function(chunk, *arguments())`` for every chunk of a file."""
        read, written = (self.folder / file for file in files)

        def run(paths: List[Path]) -> None:
            rest = arguments()
            chunks = ((chunk, *rest) for (chunk,) in read_chunks(read))
            made = map_chunks(function, chunks, self.workers)
            with paths[0].open("wb") as stream:
                for chunk in watched(made, name, "lines", lambda chunk: chunk.count(b"\n")):
                    stream.write(chunk)

        return Step(name, (written,), (read, *models), function=run, settings=settings)

    def _tokenise(self, split: str, language: str) -> Step:
        """Normalise and tokenise one file."""
        file, how = f"{split}.{language}", (self.tokeniser(language), language)
        files = (f"raw/{file}", f"tokenised/{file}")
        return self._each_chunk(f"tokenise {file}", files, _tokenise, lambda: how, settings=how)

    def _segment(self, split: str, language: str) -> Step:
        """Segment one file."""
        file, model = f"{split}.{language}", self.folder / self.models()[language]
        method = self.recipe.segmentation.method
        files = (f"{'clean' if split == 'train' else 'tokenised'}/{file}", f"bpe/{file}")

        def arguments() -> Tuple[Any, ...]:
            return method, str(model), model.stat().st_mtime_ns

        return self._each_chunk(f"segment {file}", files, subwords.segment, arguments, (model,))

    # which training pairs are kept

    def _clean(self) -> Step:
        """Drop useless training pairs; the validation and test sets stay unchanged."""
        limits = replace(self.recipe.cleaning, max_subwords=0)
        return self._keep("clean train", ("tokenised", "clean"), fault_of, limits)

    def _limit(self) -> Step:
        """Drop training pairs with too many subwords."""
        limits = Cleaning(max_subwords=self.recipe.cleaning.max_subwords)
        return self._keep("limit train", ("bpe", "limited"), too_long, limits)

    def _keep(
        self, name: str, stages: Tuple[str, str], reason: Callable[..., Any], limits: Cleaning
    ) -> Step:
        """Return a step that keeps the training pairs without fault, and counts the others."""
        read, written = (self._files(stage, "train") for stage in stages)
        fault = functools.partial(reason, limits)

        def run(paths: List[Path]) -> Dict[str, int]:
            counts = write_kept(read, paths, fault, limits.deduplicate, name, self.workers)
            if "kept" not in counts:
                raise ConfigurationError(
                    f"cleaning leaves no training pair of {self.recipe.name}: {counts} with "
                    f"{records.plain(self.recipe.cleaning)}: widen the limits or give more data"
                )
            return counts

        return Step(name, written, read, function=run, settings=limits)

    # subwords and data-bin

    def models(self) -> Dict[str, str]:
        """Return the model of each language, relative to the folder."""
        segmentation = self.recipe.segmentation
        return {side: f"bpe/{segmentation.model(side)}" for side in self.recipe.languages}

    def _learn(self) -> Step:
        """Learn subwords from the clean training text, or take those that are published with it."""
        recipe, segmentation = self.recipe, self.recipe.segmentation
        texts: Dict[str, List[Path]] = {}
        for language, model in self.models().items():
            texts.setdefault(model, []).append(self.folder / "clean" / f"train.{language}")
        outputs = tuple(self.folder / model for model in texts)
        if recipe.codes:
            codes = self.source(recipe.codes)
            return Step(
                "take subwords",
                outputs,
                (codes,),
                function=lambda paths: paths[0].write_bytes(chunk_of(read_lines(codes))),
            )
        return Step(
            "learn subwords",
            outputs,
            tuple(chain.from_iterable(texts.values())),
            function=lambda paths: subwords.learn(
                segmentation.method,
                segmentation.size,
                dict(zip(paths, texts.values())),
                self.workers,
            ),
            settings=segmentation,
        )

    def _binarise(self) -> Step:
        """Make the fairseq data-bin."""
        stages = dict.fromkeys(self.recipe.subsets, "bpe")
        if self.recipe.cleaning.max_subwords:
            stages["train"] = "limited"
        prefixes = {split: str(self.folder / stage / split) for split, stage in stages.items()}
        source, target = self.recipe.languages
        tests = ",".join(prefixes[name] for name in self.recipe.test_sets)
        joint = ["--joined-dictionary"] if self.recipe.segmentation.joint else []
        arguments = [*joint, "--source-lang", source, "--target-lang", target]
        arguments += ["--trainpref", prefixes["train"], "--validpref", prefixes["valid"]]
        arguments += ["--testpref", tests, "--workers", str(self.workers), "--destdir"]
        return Step(
            "binarise",
            (self.folder / "bin",),
            tuple(path for split in stages for path in self._files(stages[split], split)),
            function=lambda paths: fairseq.binarise([*arguments, str(paths[0])], paths[0]),
            settings=joint,
        )

    def steps(self) -> List[Step]:
        """Return all steps in order."""
        sides = [(split, side) for split in self.recipe.subsets for side in self.recipe.languages]
        fetched = self.recipe.needed() if self.local is None else ()
        return [
            *(self._fetch(name) for name in fetched),
            self._raw(),
            *(self._tokenise(*side) for side in sides),
            self._clean(),
            self._learn(),
            *(self._segment(*side) for side in sides),
            *([self._limit()] if self.recipe.cleaning.max_subwords else []),
            self._binarise(),
        ]

    # the whole

    def run(self) -> Path:
        """Prepare the corpus, or what is missing of it, and return the data-bin."""
        prepared = PreparedData(self.folder)
        waiting = f"waiting for another process that prepares {self.folder}"
        with locked(self.folder / ".lock", waiting, say):
            if prepared.manifest.exists():
                self._check_unchanged(prepared.read_manifest())
                return prepared.binarised
            say(f"{self.recipe.name} {self.recipe.pair}: {self.recipe.description}")
            if self.local is not None:
                self._check_local()
            done = StepRecords(self.folder / STEPS)
            steps = self.steps()
            run_steps(steps, done, say)
            records.write(prepared.manifest, self._manifest(steps, done))
        return prepared.binarised

    def _check_unchanged(self, manifest: DataManifest) -> None:
        """Raise unless a complete folder is of this recipe and of these sources."""
        ours, theirs = self.recipe.decisive(), manifest.recipe
        keys = dict.fromkeys([*ours, *theirs])
        change = next((key for key in keys if ours.get(key) != theirs.get(key)), None)
        if change is None and self.local is not None:
            for name, known in manifest.sources.items():
                if (self.local / name).is_file() and sha256(self.local / name) != known:
                    change = f"the content of {name}"
        if change is not None:
            named = f"{theirs.get('name', '')} {manifest.pair}".strip()
            raise ConfigurationError(
                f"--output {self.folder} holds {named} with another recipe or text ({change} "
                f"differs): give another folder, or delete this one"
            )

    def _manifest(self, steps: List[Step], done: StepRecords) -> DataManifest:
        dropped: Dict[str, Dict[str, int]] = {
            step.name: done.records[step.name].notes
            for step in steps
            if step.name in ("clean train", "limit train")
        }
        files = [file for step in steps for output in step.outputs for file in _files_of(output)]
        inside = [path for path in files if path.parent != self.folder / "sources"]
        names = [str(path.relative_to(self.folder)) for path in inside]
        sources = [self.source(name) for name in self.recipe.needed()]
        made = map_chunks(_describe, ((path,) for path in inside), self.workers)
        versions = {tool: installed_version(tool) for tool in TOOLS}
        return DataManifest(
            recipe=self.recipe.decisive(),
            description=self.recipe.description,
            command=self.command,
            pair=self.recipe.pair,
            pairs=list(dropped.values())[-1]["kept"],
            subsets=self.recipe.subsets,
            tokenisers={side: self.tokeniser(side) for side in self.recipe.languages},
            segmentation=records.plain(self.recipe.segmentation),
            models=self.models(),
            dropped=dropped,
            tools={tool: version for tool, version in versions.items() if version is not None},
            sources=dict(zip(self.recipe.needed(), map(sha256, sources))),
            files=dict(zip(names, made)),
        )

    def script(self) -> Iterator[str]:
        """Yield what the preparation would do, one line a step."""
        yield f"# {self.recipe.name} {self.recipe.pair}: {self.recipe.description}"
        for number, step in enumerate(self.steps(), 1):
            yield f"[{number}] {step.name} -> {', '.join(map(str, step.outputs))}"


def _files_of(output: Path) -> List[Path]:
    return sorted(output.iterdir()) if output.is_dir() else [output]


def _describe(path: Path) -> FileRecord:
    if path.suffix in (".bin", ".idx"):
        return FileRecord(sha256=sha256(path))
    lines = tokens = 0
    with path.open("rb") as stream:
        for line in stream:
            lines += 1
            tokens += len(line.split())
    return FileRecord(sha256=sha256(path), lines=lines, tokens=tokens)


def _tokenise(chunk: bytes, tokeniser: str, language: str) -> bytes:
    return chunk_of(map(make_tokeniser(tokeniser, language), lines_of(chunk)))

"""The preparation of a corpus: its steps, from published files or the user's to a data-bin."""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora import binarise as fairseq
from capsnmt.corpora import subwords
from capsnmt.corpora.archives import Text, copy_texts
from capsnmt.corpora.console import say, watched
from capsnmt.corpora.formats import aligned, read_lines, read_text
from capsnmt.corpora.parallel import LINES, chunk_of, lines_of, map_chunks, read_chunks
from capsnmt.corpora.prepared import DataManifest, FileRecord, PreparedData
from capsnmt.corpora.recipe import Cleaning, Piece, Recipe
from capsnmt.corpora.sources import Address, download, has_checksum, local_file
from capsnmt.corpora.text import LOWERCASE, make_tokeniser
from capsnmt.files import installed_version, locked, remove, sha256, temporary_path
from capsnmt.lines import blank_lines
from capsnmt.steps import Step, StepRecords, run_steps

TOOLS = ("sacremoses", "jieba", "subword-nmt", "sentencepiece", "fairseq", "ve-fairseq", "torch")
STEPS = ".steps.json"
SEED = 1  # of the pairs that are held out
SentencePairs = Iterator[Tuple[str, str]]


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
        recipe, scratch = self.recipe, temporary_path(self.folder / "unpacked")
        splits = list(recipe.subsets)
        needed = recipe.needed()

        def run(paths: List[Path]) -> Dict[str, int]:
            remove(scratch)
            try:
                texts = self._texts(scratch)
                pairs = {name: self._split(name, texts) for name in recipe.splits}
                if recipe.held_out:
                    pairs.update(self._hold_out(lambda: self._split("train", texts)))
                return {
                    split: self._write_split(split, paths[2 * number : 2 * number + 2], pairs)
                    for number, split in enumerate(splits)
                }
            finally:
                remove(scratch)

        what = ("pair", "splits", "held-out", "lowercase")
        return Step(
            "raw",
            tuple(path for split in splits for path in self._files("raw", split)),
            tuple(self.source(name) for name in needed),
            function=run,
            settings={key: records.plain(recipe).get(key) for key in what},
        )

    def _texts(self, scratch: Path) -> Dict[Tuple[str, str], List[Text]]:
        """Return the texts of the sources, by file and pattern; archives are read in parallel."""
        jobs = [
            (self.source(name), name, patterns, scratch / str(number))
            for number, (name, patterns) in enumerate(self.recipe.needed().items())
        ]
        made = map_chunks(copy_texts, jobs, min(self.workers, len(jobs)))
        return {
            (name, pattern): texts
            for (_, name, _, _), found in zip(jobs, made)
            for pattern, texts in found.items()
        }

    def _split(self, split: str, texts: Mapping[Tuple[str, str], List[Text]]) -> SentencePairs:
        """Yield the sentence pairs of a split."""
        return chain.from_iterable(self._piece(each, texts) for each in self.recipe.pieces(split))

    def _piece(self, piece: Piece, texts: Mapping[Tuple[str, str], List[Text]]) -> SentencePairs:
        languages = self.recipe.languages
        patterns = [piece.pattern(language) for language in languages]
        sides = [texts[piece.source(side), pattern] for side, pattern in zip(languages, patterns)]
        if len(sides[0]) != len(sides[1]):
            raise ConfigurationError(
                f"{piece.file}: {len(sides[0])} members match {patterns[0]} but {len(sides[1])} "
                f"match {patterns[1]}: it is not the recipe's version"
            )
        for both in zip(*sides):
            streams = [
                read_text(text, piece.format, piece.encoding, piece.columns.get(language, 1))
                for text, language in zip(both, languages)
            ]
            yield from aligned(streams[0], streams[1], (both[0].name, both[1].name))

    def _hold_out(self, read: Callable[[], SentencePairs]) -> Dict[str, SentencePairs]:
        """Draw the pairs that are held out from the training pairs.

        **D**: a training pair that is equal to one of them goes, too: it is known to the model.
        """
        number = sum(1 for _ in read())
        splits = self.recipe.held_out
        drawn = random.Random(SEED).sample(range(number), sum(splits.values()))
        chosen, places = set(drawn), iter(drawn)
        found = {place: pair for place, pair in enumerate(read()) if place in chosen}
        held_out = {
            name: [found[place] for place in sorted(islice(places, count))]
            for name, count in splits.items()
        }
        known = set(found.values())
        return {
            "train": (pair for pair in read() if pair not in known),
            **{name: iter(pairs) for name, pairs in held_out.items()},
        }

    def _write_split(
        self, split: str, paths: List[Path], pairs: Mapping[str, SentencePairs]
    ) -> int:
        """Write a split, and return its number of pairs."""
        recipe, lines = self.recipe, 0
        stream = pairs[split]
        if recipe.lowercase:
            stream = ((source.lower(), target.lower()) for source, target in stream)
        with paths[0].open("wb") as source, paths[1].open("wb") as target:
            chunks = iter(lambda: list(islice(stream, LINES)), [])
            for chunk in watched(chunks, split, "lines", len):
                source.write(chunk_of(left for left, _ in chunk))
                target.write(chunk_of(right for _, right in chunk))
                lines += len(chunk)
        if not lines:
            names = " and ".join(f"{split}.{language}" for language in recipe.languages)
            raise ConfigurationError(f"{recipe.name}: {names} are empty: give other files")
        expected = recipe.lines.get(split, lines)
        if lines != expected:
            say(f"  WARNING: {split} has {lines:,} pairs, and {expected:,} in the papers")
        if split != "train":  # cleaning drops blank lines of the training set
            for path, language in zip(paths, recipe.languages):
                name = f"{split}.{language}"
                blank = blank_lines([*read_lines(path)], f"{recipe.name}: {name}")
                if blank:
                    say(f"  WARNING: {blank:,} lines of {name} are blank")
        return lines

    # what each line becomes

    def tokeniser(self, language: str) -> str:
        """Return the tokeniser of a language, as translation uses it."""
        name = self.recipe.tokenisers[language]
        return f"{name}-{LOWERCASE}" if self.recipe.lowercase else name

    def _tokenise(self, split: str, language: str) -> Step:
        """Normalise and tokenise one file."""
        file, tokeniser = f"{split}.{language}", self.tokeniser(language)
        path = self.folder / "raw" / file

        def run(paths: List[Path]) -> None:
            chunks = ((chunk, tokeniser, language) for (chunk,) in read_chunks(path))
            self._write(paths[0], map_chunks(_tokenise, chunks, self.workers), f"tokenise {file}")

        return Step(
            f"tokenise {file}",
            (self.folder / "tokenised" / file,),
            (path,),
            function=run,
            settings={"tokeniser": tokeniser, "language": language},
        )

    def _write(self, path: Path, chunks: Iterable[bytes], label: str) -> None:
        with path.open("wb") as stream:
            for chunk in watched(chunks, label, "lines", lambda chunk: chunk.count(b"\n")):
                stream.write(chunk)

    def _clean(self) -> Step:
        """Drop useless training pairs; the validation and test sets stay unchanged."""
        read, limits = self._files("tokenised", "train"), self.recipe.cleaning

        def chunks() -> Iterator[Tuple[Any, ...]]:
            firsts = _first_of_equals(read, self.workers) if limits.deduplicate else None
            before = 0
            for chunk in read_chunks(*read):
                lines = chunk[0].count(b"\n")
                mask = None if firsts is None else firsts[before : before + lines]
                yield (chunk, functools.partial(_fault, limits), mask)
                before += lines

        settings = {**records.plain(limits), "max-subwords": 0}
        return self._keep("clean train", "clean", read, chunks, settings)

    def _limit(self) -> Step:
        """Drop training pairs with too many subwords."""
        read, most = self._files("bpe", "train"), self.recipe.cleaning.max_subwords

        def chunks() -> Iterator[Tuple[Any, ...]]:
            fault = functools.partial(_too_long, most)
            return ((chunk, fault, None) for chunk in read_chunks(*read))

        return self._keep("limit train", "limited", read, chunks, {"max-subwords": most})

    def _keep(
        self,
        name: str,
        stage: str,
        read: Tuple[Path, Path],
        chunks: Callable[[], Iterator[Tuple[Any, ...]]],
        settings: Any,
    ) -> Step:
        """Return a step that keeps some training pairs, and counts the others by reason."""

        def run(paths: List[Path]) -> Dict[str, int]:
            counts: Counter[str] = Counter()
            kept = map_chunks(_keep_pairs, chunks(), self.workers)
            with paths[0].open("wb") as source, paths[1].open("wb") as target:
                for left, right, some in watched(
                    kept, name, "lines", lambda made: sum(made[2].values())
                ):
                    source.write(left)
                    target.write(right)
                    counts.update(some)
            if not counts["kept"]:
                raise ConfigurationError(
                    f"cleaning leaves no training pair of {self.recipe.name}: {dict(counts)} with "
                    f"{records.plain(self.recipe.cleaning)}: widen the limits or give more data"
                )
            return dict(sorted(counts.items()))

        return Step(name, self._files(stage, "train"), read, function=run, settings=settings)

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
                function=lambda paths: self._write(
                    paths[0], [chunk_of(read_lines(codes))], "take subwords"
                ),
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

    def _segment(self, split: str, language: str) -> Step:
        """Segment one file."""
        file, model = f"{split}.{language}", self.folder / self.models()[language]
        path = self.folder / ("clean" if split == "train" else "tokenised") / file

        def run(paths: List[Path]) -> None:
            how = (self.recipe.segmentation.method, str(model), model.stat().st_mtime_ns)
            chunks = ((chunk, *how) for (chunk,) in read_chunks(path))
            made = map_chunks(subwords.segment, chunks, self.workers)
            self._write(paths[0], made, f"segment {file}")

        outputs = (self.folder / "bpe" / file,)
        return Step(f"segment {file}", outputs, (path, model), function=run)

    def _binarise(self) -> Step:
        """Make the fairseq data-bin."""
        stages = dict.fromkeys(self.recipe.subsets, "bpe")
        if self.recipe.cleaning.max_subwords:
            stages["train"] = "limited"
        joint = self.recipe.segmentation.joint

        def run(paths: List[Path]) -> None:
            prefixes = {split: self.folder / stage / split for split, stage in stages.items()}
            languages = self.recipe.languages
            command = fairseq.binarise_command(prefixes, languages, paths[0], self.workers, joint)
            fairseq.binarise(command, paths[0])

        return Step(
            "binarise",
            (self.folder / "bin",),
            tuple(path for split in stages for path in self._files(stages[split], split)),
            function=run,
            settings={"joined_dictionary": joint},
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
        """Prepare the corpus, or what is missing of it, and return the data-bin.

        Raises:
            ConfigurationError: bad input, or the folder holds another corpus; no partial output
                remains.
            ExecutionError: a download or fairseq-preprocess failed; no partial output remains.
        """
        prepared = PreparedData(self.folder)
        waiting = f"waiting for another process that prepares {self.folder}"
        with locked(self.folder / ".lock", "", math.inf, waiting, say):
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


def _fault(limits: Cleaning, source: str, target: str) -> Optional[str]:
    """Return the reason to drop a tokenised pair, or None."""
    lengths = len(source.split()), len(target.split())
    if not all(lengths):
        return "empty"
    if max(lengths) > limits.max_length:
        return "length"
    if max(lengths) > limits.max_ratio * min(lengths):
        return "ratio"
    if subwords.has_long_word(source) or subwords.has_long_word(target):
        return "word"
    return None


def _too_long(most: int, source: str, target: str) -> Optional[str]:
    return "subwords" if max(len(source.split()), len(target.split())) > most else None


def _keep_pairs(
    chunk: Tuple[bytes, bytes],
    fault: Callable[[str, str], Optional[str]],
    firsts: Optional[np.ndarray],
) -> Tuple[bytes, bytes, Counter[str]]:
    """Return the pairs without fault, and their numbers by reason.

    Args:
        chunk: the two sides.
        fault: returns the reason to drop a pair, or None.
        firsts: whether each pair is the first of those that are equal; None to keep all.
    """
    kept: List[Tuple[str, str]] = []
    counts: Counter[str] = Counter()
    for number, pair in enumerate(zip(*map(lines_of, chunk))):
        reason = fault(*pair)
        if reason is None and firsts is not None and not firsts[number]:
            reason = "duplicate"
        counts[reason or "kept"] += 1
        if reason is None:
            kept.append(pair)
    return chunk_of(left for left, _ in kept), chunk_of(right for _, right in kept), counts


def _digests(source: bytes, target: bytes) -> bytes:
    pairs = zip(source.split(b"\n")[:-1], target.split(b"\n")[:-1])
    return b"".join(hashlib.blake2b(b"\n".join(pair), digest_size=8).digest() for pair in pairs)


def _first_of_equals(paths: Tuple[Path, Path], workers: int) -> np.ndarray:
    """Return whether each pair is the first of those that are equal, by a digest of 8 bytes."""
    digests = b"".join(map_chunks(_digests, read_chunks(*paths), workers))
    numbers = np.frombuffer(digests, "<u8")
    firsts = np.zeros(len(numbers), bool)
    firsts[np.unique(numbers, return_index=True)[1]] = True
    return firsts

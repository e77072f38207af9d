"""The preparation of a corpus: its steps, from published files or the user's to a data-bin."""

import gzip
import os
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError, check_output_file, say
from capsnmt.corpora import binarise as fairseq
from capsnmt.corpora import cleaning, subwords
from capsnmt.corpora.parallel import map_file, map_jobs
from capsnmt.corpora.prepared import DataManifest, FileRecord, PreparedData
from capsnmt.corpora.raw import write_raw
from capsnmt.corpora.recipe import Recipe, language_of_side
from capsnmt.corpora.sources import Address, download, has_checksum, in_folders, local_file
from capsnmt.corpora.text import LOWERCASE, lowercase, tokenise
from capsnmt.files import (
    FAIRSEQS,
    content_of,
    hexdigest,
    installed_version,
    locked,
    sha256,
    temporary_path,
    without_folders,
)
from capsnmt.steps import Step, StepRecords, run_step

TOOLS = ("sacremoses", "jieba", "subword-nmt", "sentencepiece", *FAIRSEQS, "torch")
LOCK, STEPS = ".lock", ".steps.json"


@dataclass(frozen=True)
class Preparation:
    """The preparation of one corpus in one folder.

    Layout of the folder: ``sources/`` fetched files; ``raw/SPLIT.LANGUAGE`` text as published, to
    score against (further references in ``LANGUAGE.1``, ...), and ``cased/`` the same where all
    text is lower-cased; ``tokenised/``; ``clean/`` the training pairs kept; ``bpe/`` segmented text
    and the model; ``limited/`` the segmented training pairs within ``max-subwords``, if the recipe
    sets it; ``bin/`` the fairseq data-bin; and ``manifest.json``.

    Attributes:
        local: folder that holds the source files, instead of fetching them.
        mirrors: URLs of folders that are tried first for every source file.
        command: the command line, for the manifest.
    """

    recipe: Recipe
    folder: Path
    local: Optional[Path] = None
    mirrors: Tuple[str, ...] = ()
    workers: int = 1
    command: str = ""

    def run(self) -> Path:
        """Prepare the corpus, or what is missing of it, and return the data-bin."""
        prepared = PreparedData(self.folder)
        complete = prepared.is_complete()
        if not complete:
            self._check_outputs()
        waiting = f"waiting for another process that prepares {self.folder}"
        # a complete folder is only read: it may be shared, and another user's
        with nullcontext() if complete else locked(self.folder / LOCK, waiting, say) as lock:
            if prepared.manifest.exists():
                self.check_unchanged()
            if prepared.is_complete():
                return prepared.binarised
            say(f"{self.recipe.name} {self.recipe.pair}: {self.recipe.description}")
            if self.local is not None:
                self._note_other_versions()
            done = StepRecords(self.folder / STEPS)
            steps = self.steps(lock)
            for number, step in enumerate(steps, 1):
                run_step(step, done, say, f"[{number}/{len(steps)}]")
            records.write(prepared.manifest, self._manifest(steps, done))
        return prepared.binarised

    def script(self) -> Iterator[str]:
        """Yield what the preparation would do, one line a step."""
        yield f"# {self.recipe.name} {self.recipe.pair}: {self.recipe.description}"
        for number, step in enumerate(self.steps(), 1):
            yield f"[{number}] {step.name} -> {', '.join(map(str, step.outputs))}"

    def steps(self, lock: Optional[int] = None) -> List[Step]:
        """Return all steps in order; a program that is started holds ``lock`` as well."""
        recipe = self.recipe
        pairs = [(split, side) for split in recipe.subsets for side in recipe.languages]
        texts = self._texts()
        lowered = partial(self._map, "lower-case", lowercase, "cased", "raw")
        limited = [self._keep("limit train", cleaning.judge_subwords, "bpe", "limited")]
        if not recipe.cleaning.max_subwords:
            limited = []
        return [
            *(self._fetch(name) for name in recipe.needed() if self.local is None),
            self._raw(),
            *(lowered(text) for text in texts if recipe.lowercase),
            *map(self._tokenise, texts),
            self._keep("clean train", cleaning.judge_tokens, "tokenised", "clean"),
            self._learn(),
            *(self._segment(*pair) for pair in pairs),
            *limited,
            self._binarise("limited" if limited else "bpe", lock),
        ]

    def _source(self, name: str) -> Path:
        if self.local is not None:
            return local_file(self.local, name)
        return self.folder / "sources" / name

    @property
    def _published(self) -> str:
        return "cased" if self.recipe.lowercase else "raw"

    def _texts(self) -> List[str]:
        """Return the name of the text of every side of every split."""
        splits = self.recipe.subsets
        return [f"{split}.{side}" for split in splits for side in self.recipe.sides(split)]

    def _files(self, stage: str, split: str) -> Tuple[Path, ...]:
        return tuple(self.folder / stage / f"{split}.{side}" for side in self.recipe.languages)

    def _models(self) -> Dict[str, str]:
        """Return the subword model of each language, relative to the folder."""
        segmentation = self.recipe.segmentation
        return {side: f"bpe/{segmentation.model(side)}" for side in self.recipe.languages}

    def _tokeniser(self, language: str, raw: bool = False) -> str:
        """Return the tokeniser of a language: of the published text, or of ``raw`` text."""
        name = self.recipe.tokenisers[language]
        name = self.recipe.tokenised_by.get(language, name) if raw else name
        lowers = self.recipe.lowercase and not name.endswith(LOWERCASE)
        return f"{name}-{LOWERCASE}" if lowers else name

    def _fetch(self, name: str) -> Step:
        recipe, source = self.recipe, self.recipe.files[name]
        urls = [(url,) if isinstance(url, str) else url for url in source.urls]
        addresses = [
            *in_folders(self.mirrors, name, source.checksum),
            *(Address(parts, source.checksum) for parts in urls),
            *in_folders(recipe.mirrors, name, source.checksum),
            *(Address((url,)) for url in source.repacked),
        ]
        fix = "fetch it by other means and give its folder with --local"
        if len(corpora := recipe.training_corpora()) > 1:
            fix += f", or leave out a training corpus: --corpora with some of {', '.join(corpora)}"
        return Step(
            f"fetch {name}",
            (self.folder / "sources" / name,),
            function=lambda paths: download(paths[0], name, addresses, fix),
            settings=source.checksum,
        )

    def _note_other_versions(self) -> None:
        """Note which of the user's files are not the published ones.

        **D**: other versions are allowed, but are never passed off as the published one.
        """
        for name in self.recipe.needed():
            path, expected = self._source(name), self.recipe.files[name].checksum
            packed = path.name == f"{name}.gz"
            if not packed and path.name != name:
                continue  # which bytes gzip would make of it, nobody knows
            if expected and not has_checksum(path, expected, packed):
                say(f"  note: {path} is not the published file (its checksum differs); used as is")

    def _raw(self) -> Step:
        """Read the sources: every split as line-aligned files of text, one for each side."""
        sources = {name: self._source(name) for name in self.recipe.needed()}
        scratch = temporary_path(self.folder / "unpacked")
        recipe, decisive = self.recipe.decisive(), ["pair", "splits", "held-out"]
        if self.recipe.valid_every:
            decisive += ["valid-every", "tokenisers", "cleaning"]

        def write(paths: Sequence[Path]) -> Dict[str, str]:
            """Write them; return the checksum of what each gzipped source holds."""
            write_raw(self.recipe, sources, scratch, self.workers, paths)
            held: Dict[str, str] = {}
            for name, path in ((x, y) for x, y in sources.items() if y.suffix == ".gz"):
                with suppress(gzip.BadGzipFile):  # an archive may be read whatever it is named
                    held[name] = hexdigest(path, "sha256", gzip.open)
            return held

        return Step(
            "raw",
            tuple(self.folder / self._published / text for text in self._texts()),
            tuple(sources.values()),
            function=write,
            settings=[recipe.get(key) for key in decisive],
        )

    def _tokenise(self, file: str) -> Step:
        language = language_of_side(file.partition(".")[2])
        how = self._tokeniser(language), language
        step = self._map("tokenise", partial(tokenise, *how), self._published, "tokenised", file)
        return replace(step, settings=how)

    def _segment(self, split: str, language: str) -> Step:
        model = self.folder / self._models()[language]
        function = partial(subwords.segment, self.recipe.segmentation.method, model)
        before = "clean" if split == "train" else "tokenised"
        step = self._map("segment", function, before, "bpe", f"{split}.{language}")
        return replace(step, inputs=(*step.inputs, model))

    def _map(
        self, name: str, function: Callable[[bytes], bytes], before: str, after: str, file: str
    ) -> Step:
        read, written = self.folder / before / file, self.folder / after / file
        made = partial(map_file, function, read, self.workers)
        return Step(f"{name} {file}", (written,), (read,), function=made)

    def _keep(self, name: str, judge: cleaning.Judge, before: str, after: str) -> Step:
        """Return a step that keeps some of the training pairs, and counts the others."""
        limits = self.recipe.cleaning
        read, written = self._files(before, "train"), self._files(after, "train")
        function = partial(cleaning.write_kept, judge, limits, read, self.workers)
        return Step(name, written, read, function=function, settings=limits)

    def _learn(self) -> Step:
        """Learn subwords from the clean training text, or take those that are published with it."""
        recipe = self.recipe
        texts: Dict[Path, List[Path]] = {}
        for model, text in zip(self._models().values(), self._files("clean", "train")):
            texts.setdefault(self.folder / model, []).append(text)
        if recipe.codes:
            codes = self._source(recipe.codes)
            take = partial(subwords.take, codes)
            return Step("take subwords", tuple(texts), (codes,), function=take)
        return Step(
            "learn subwords",
            tuple(texts),
            self._files("clean", "train"),
            function=partial(subwords.learn, recipe.segmentation, [*texts.values()], self.workers),
            settings=recipe.segmentation,
        )

    def _binarise(self, train: str, lock: Optional[int]) -> Step:
        stages = {split: train if split == "train" else "bpe" for split in self.recipe.subsets}
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
            function=lambda paths: fairseq.binarise([*arguments, str(paths[0])], paths[0], lock),
            settings=[*joint, *self.recipe.test_sets],  # their order decides their names in bin
        )

    def _check_outputs(self) -> None:
        """Raise if a step would replace a source, or a file where no preparation has begun."""
        check_output_file(PreparedData(self.folder).manifest, "--output")
        # the lock is older than any output, and stays
        begun = any((self.folder / name).exists() for name in (LOCK, STEPS))
        needed = self.recipe.needed() if self.local is not None else ()
        sources = {os.path.realpath(self._source(name)) for name in needed}
        for path in (path for step in self.steps() for path in step.outputs):
            if os.path.realpath(path) in sources or (path.exists() and not begun):
                raise ConfigurationError(
                    f"--output {self.folder}: the preparation would replace {path}, which it did "
                    f"not make; give another folder"
                )

    def check_unchanged(self) -> None:
        """Raise unless a complete folder is of this recipe and of these sources."""
        manifest = PreparedData(self.folder).read_manifest()
        # the user's files may lie elsewhere now: their content is compared
        ours, theirs = map(without_folders, (self.recipe.decisive(), manifest.recipe))
        changes = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if not changes and self.recipe.test_sets != [*manifest.test_sets]:
            changes = ["the order of test sets"]
        changes = changes or [*self._changed_sources(manifest.sources)]
        if changes:
            named = f"{theirs.get('name', '')} {manifest.pair}".strip()
            raise ConfigurationError(
                f"--output {self.folder} holds {named} with another recipe or text ({changes[0]} "
                f"differs); give another folder, or delete this one"
            )

    def _changed_sources(self, known: Mapping[str, str]) -> Iterator[str]:
        """Yield what of the sources, whose SHA-256 was ``known``, is another now."""
        done = StepRecords(self.folder / STEPS)
        raw = done.records.get("raw")
        unpacked: Dict[str, str] = (raw and raw.notes) or {}  # an older version noted none
        for needed, (name, checksum) in zip(self.recipe.needed(), known.items()):
            if self.local is None:  # an address may be another
                step, wanted = done.records.get(f"fetch {needed}"), self.recipe.files[needed]
                if step and wanted.checksum not in ("", checksum, step.command):
                    yield f"the checksum of {needed}"
            same = True  # what is not there is needed no more
            with suppress(ConfigurationError, OSError):
                path = self._source(needed)  # plain or gzipped, as it would be read now
                if path.name == f"{Path(name).name}.gz":  # packed since
                    same = has_checksum(path, checksum, packed=True)
                elif path.name != Path(name).name:  # unpacked since
                    same = needed not in unpacked or has_checksum(path, unpacked[needed])
                else:  # a large file was read when it was prepared
                    same = content_of(done.signature("raw", path)) in ("", checksum)
            if not same:
                yield f"the content of {name}"

    def _dropped(self, steps: List[Step], done: StepRecords) -> Dict[str, Dict[str, int]]:
        """Return the training pairs by verdict for each step of cleaning, and say what it drops."""
        names = [step.name for step in steps if step.name in ("clean train", "limit train")]
        found: Dict[str, Dict[str, int]] = {name: done.records[name].notes for name in names}
        why = {key: count for each in found.values() for key, count in each.items()}
        kept = why.pop("kept")  # by the last step
        if why:
            dropped = ", ".join(f"{count:,} {key}" for key, count in why.items())
            total = kept + sum(why.values())
            say(f"  {kept:,} of {total:,} training pairs are kept; dropped: {dropped}")
        return found

    def _known(self) -> Dict[str, int]:
        """Warn of what is doubtful; return how many pairs of each set the model trains on.

        **D**: published sets stay as they are published, and a user's own as they were given. Text
        is compared as the model reads it.
        """
        recipe, clean = self.recipe, self._files("clean", "train")
        sets: Dict[str, Sequence[Path]] = {
            split: [self.folder / f"tokenised/{split}.{it}" for it in recipe.sides(split)]
            for split in recipe.subsets
            if split != "train"
        }
        for place, side in enumerate(recipe.languages):
            texts = {f"{split}.{side}": paths[place] for split, paths in sets.items()}
            cleaning.warn_of_new_words(clean[place], texts)
        cleaning.warn_of_copies(clean)
        left: Dict[str, Sequence[Path]] = {"train": clean, **sets}
        for split, paths in left.items():
            cleaning.warn_of_unrelated(split, paths[:2])
        known = {
            split: cleaning.warn_of_known(split, left.pop(split)[:2], left)
            for split in recipe.subsets
        }
        return known["train"]

    def _manifest(self, steps: List[Step], done: StepRecords) -> DataManifest:
        recipe, dropped = self.recipe, self._dropped(steps, done)
        files = [
            file
            for step in steps
            if not step.name.startswith("fetch ")
            for output in step.outputs
            for file in (sorted(output.iterdir()) if output.is_dir() else [output])
        ]
        # by the names that the files have, plain or gzipped
        found = ((Path(name), self._source(name)) for name in recipe.needed())
        sources = {name.with_name(path.name): path for name, path in found}
        made = map_jobs(_describe, ((file,) for file in files), self.workers)
        return DataManifest(
            recipe=recipe.decisive(),
            description=recipe.description,
            command=self.command,
            pair=recipe.pair,
            pairs=list(dropped.values())[-1]["kept"],
            subsets=recipe.subsets,
            tokenisers={side: self._tokeniser(side, raw=True) for side in recipe.languages},
            segmentation=records.plain(recipe.segmentation),
            models=self._models(),
            dropped=dropped,
            known=self._known(),
            tools={tool: version for tool in TOOLS if (version := installed_version(tool))},
            sources={str(name): sha256(path) for name, path in sources.items()},
            files={str(file.relative_to(self.folder)): record for file, record in zip(files, made)},
        )


def _describe(path: Path) -> FileRecord:
    if path.suffix in (".bin", ".idx"):
        return FileRecord(sha256=sha256(path))
    lines = tokens = 0
    with path.open("rb") as stream:
        for line in stream:
            lines += 1
            tokens += len(line.split())
    return FileRecord(sha256=sha256(path), lines=lines, tokens=tokens)

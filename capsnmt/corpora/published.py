"""Published corpora: archives or plain files, in any format of `formats`."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from capsnmt.cli import ConfigurationError, ExecutionError
from capsnmt.corpora.archive import INSIDE, is_archive, matches
from capsnmt.corpora.blocks import Block, Part, aligned, cut, encoded, in_parts, map_blocks
from capsnmt.corpora.formats import FORMATS, LINE_BY_LINE, read_text
from capsnmt.corpora.sources import CHECKSUM, SourceFile, Store, check_names, obtain
from capsnmt.settings import build


@dataclass(frozen=True)
class Piece:
    """A part of a split, in two files or in members of archives.

    Attributes:
        file: name of the published file; ``{language}`` is replaced by each language.
        members: pattern of the members of an archive, or language -> pattern; see
            `capsnmt.corpora.archive.unpack`. Several members are read in the order of their names.
        format: a key of `FORMATS`.
        encoding: the encoding of the text.
        columns: language -> column of a ``tsv``, counted from 1.
        name: its name for ``--corpora``.
    """

    file: str
    members: Any = ""
    format: str = "plain"
    encoding: str = "utf-8"
    columns: Mapping[str, int] = field(default_factory=dict)
    name: str = ""

    def source(self, language: str) -> str:
        """Return the name of the file with the side in ``language``."""
        return self.file.replace("{language}", language)

    def pattern(self, language: str) -> str:
        """Return the pattern of the members with the side in ``language``.

        If an archive replaces a plain file, its member has the name of that file.
        """
        if not self.members:
            return self.source(language)
        pattern = self.members.get(language) if isinstance(self.members, Mapping) else self.members
        return str(pattern).replace("{language}", language)


@dataclass(frozen=True)
class Published:
    """A corpus of published files.

    Attributes:
        files: name -> source; a text is a checksum without URLs.
        splits: split -> its pieces; a text is one plain file.
        mirrors: URLs of folders that have the files by their names.
        alone: name of a training corpus -> the warning if it is the only one.
        lines: split -> number of lines in the papers; any other number causes a warning.
        corpora: names of the training corpora in use; empty for all.
        codes: the file with the merges of subword-nmt that are published with the text; empty if
            they are to be learned.
    """

    files: Mapping[str, SourceFile]
    splits: Mapping[str, tuple[Piece, ...]]
    mirrors: tuple[str, ...] = ()
    alone: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    corpora: tuple[str, ...] = ()
    codes: str = ""

    tools: ClassVar[tuple[str, ...]] = ("pooch",)

    @classmethod
    def parse(cls, values: Any, origin: str, section: str) -> Published:
        """Return the corpus that a mapping of a recipe describes.

        Args:
            values: the mapping.
            origin: the recipe's file.
            section: the mapping's key in it.

        Raises:
            ConfigurationError: a key or value is wrong.
        """
        corpus = build(cls, values, origin, section)
        files, splits = {}, {}
        entry: Any
        for name, entry in corpus.files.items():
            entry = {"checksum": entry} if isinstance(entry, str) else entry
            files[name] = build(SourceFile, entry, origin, f"{section}.files.{name}")
        for split, entry in corpus.splits.items():
            key = f"{section}.splits.{split}"
            pieces = [{"file": entry}] if isinstance(entry, str) else entry
            if not isinstance(pieces, list):
                raise ConfigurationError(f"{origin}: {key}: {pieces!r}: give a list, or a text")
            splits[split] = tuple(build(Piece, piece, origin, key) for piece in pieces)
        return replace(corpus, files=files, splits=splits)

    def choose(self, names: Iterable[str]) -> Published:
        """Return the corpus with only some of its training corpora.

        Raises:
            ConfigurationError: one is unknown.
        """
        known = list(dict.fromkeys(piece.name for piece in self.splits["train"] if piece.name))
        for name in names:
            if name not in known:
                raise ConfigurationError(
                    f"--corpora {name}: the recipe's training corpora are "
                    f"{', '.join(known) or 'one, without a name'}"
                )
        kept = tuple(piece for piece in self.splits["train"] if piece.name in set(names))
        return replace(self, splits={**self.splits, "train": kept}, corpora=tuple(names))

    def warning(self) -> str:
        """Return the warning about the chosen training corpora; usually none."""
        names = {piece.name for piece in self.splits["train"]}
        return self.alone.get(next(iter(names)), "") if len(names) == 1 else ""

    def check(self, language: str, origin: str) -> None:
        """Raise a ConfigurationError, starting with `origin`, unless all of `language` exists."""
        check_names(self.files)
        self._check_files(origin)
        for split, piece in self._pieces():
            self._check_piece(split, piece, language, origin)

    def _check_files(self, origin: str) -> None:
        if self.codes and self.codes not in self.files:
            raise ConfigurationError(f"{origin}: codes {self.codes!r}: add it to files")
        for name, file in self.files.items():
            if not CHECKSUM.fullmatch(file.checksum):
                raise ConfigurationError(
                    f"{origin}: checksum {file.checksum!r} of {name}: 64 hexadecimal digits "
                    f"(SHA-256), or md5: and 32"
                )
            parts = [url if isinstance(url, list) else [url] for url in file.urls]
            for url in chain.from_iterable(parts):
                if not str(url).startswith(("http://", "https://")):
                    raise ConfigurationError(
                        f"{origin}: url {url!r} of {name}: give an http:// or https:// address"
                    )
            if file.otherwise and (
                file.otherwise not in self.files or self.files[file.otherwise].otherwise
            ):
                raise ConfigurationError(
                    f"{origin}: {name} is otherwise {file.otherwise!r}: name another of files, "
                    f"one that is not otherwise a third"
                )

    def _check_piece(self, split: str, piece: Piece, language: str, origin: str) -> None:
        if piece.source(language) not in self.files:
            raise ConfigurationError(
                f"{origin}: no file {piece.source(language)} for split {split}: "
                f"add it to files, or correct splits"
            )
        if is_archive(Path(piece.source(language))) != bool(piece.members):
            fault = "no archive: leave out" if piece.members else "an archive: give"
            raise ConfigurationError(f"{origin}: split {split}: {piece.file} is {fault} members")
        if isinstance(piece.members, Mapping) and language not in piece.members:
            raise ConfigurationError(f"{origin}: split {split}: no members for {language}")
        if piece.format not in FORMATS:
            raise ConfigurationError(
                f"{origin}: format {piece.format!r} of split {split}: use {', '.join(FORMATS)}"
            )
        column = piece.columns.get(language)
        if piece.format == "tsv" and not (isinstance(column, int) and column > 0):
            raise ConfigurationError(
                f"{origin}: columns {dict(piece.columns)} of split {split}: give {language} a "
                f"column, from 1"
            )
        try:
            codecs.lookup(piece.encoding)
        except LookupError:
            raise ConfigurationError(
                f"{origin}: encoding {piece.encoding!r} of split {split} is unknown to Python"
            ) from None

    def _pieces(self) -> Iterator[tuple[str, Piece]]:
        return ((split, piece) for split, pieces in self.splits.items() for piece in pieces)

    def settings(self) -> dict[str, Any]:
        """Return everything that determines the pairs except the files' contents."""
        return {
            "splits": {
                split: [
                    {key: value for key, value in vars(piece).items() if value} for piece in pieces
                ]
                for split, pieces in self.splits.items()
            }
        }

    def fetch(self, store: Store, languages: tuple[str, str]) -> dict[str, Path]:
        """Return the path of each published file that a split needs; fetch missing ones.

        Raises:
            ConfigurationError: a file is missing and may not be fetched.
            ExecutionError: no mirror provides a file.
        """
        names = [piece.source(side) for _, piece in self._pieces() for side in languages]
        names += [self.codes] if self.codes else []
        try:
            return {
                name: obtain(name, self.files, self.mirrors, store) for name in dict.fromkeys(names)
            }
        except (ConfigurationError, ExecutionError) as error:
            corpora = {piece.name for piece in self.splits["train"] if piece.name}
            if len(corpora) < 2:
                raise
            raise type(error)(
                f"{error}; or leave out a training corpus: --corpora with some of "
                f"{', '.join(sorted(corpora))}"
            ) from None

    def members(self, name: str, languages: tuple[str, str]) -> list[str]:
        """Return the patterns of the members that are needed from the file ``name``."""
        patterns = [
            piece.pattern(side)
            for _, piece in self._pieces()
            for side in languages
            if piece.source(side) == name
        ]
        return list(dict.fromkeys(patterns))

    def parts(
        self, sources: Mapping[str, Path], source: str, target: str, workers: int
    ) -> tuple[Mapping[str, Iterable[Part]], Mapping[str, Any]]:
        """Return the pairs of raw lines of each split, as a stream; and no notes.

        Args:
            sources: file name -> its path, or the folder with its unpacked members.
            source: the source language.
            target: the target language.
            workers: number of processes.
        """
        return {
            split: chain.from_iterable(
                self._read(piece, sources, (source, target), workers) for piece in pieces
            )
            for split, pieces in self.splits.items()
        }, {}

    def _read(
        self,
        piece: Piece,
        sources: Mapping[str, Path],
        languages: tuple[str, str],
        workers: int,
    ) -> Iterator[Part]:
        sides = [_texts(sources[piece.source(side)], piece.pattern(side)) for side in languages]
        if len(sides[0]) != len(sides[1]):
            raise ConfigurationError(
                f"{piece.file}: {len(sides[0])} members match {piece.pattern(languages[0])} but "
                f"{len(sides[1])} match {piece.pattern(languages[1])}: it is not the recipe's "
                f"version"
            )
        columns = tuple(piece.columns.get(side, 1) for side in languages)
        how = piece.format, piece.encoding, columns
        for paths in zip(*sides):
            if piece.format in LINE_BY_LINE and not any(path.suffix == ".gz" for path in paths):
                yield from map_blocks(_make_reader, how, cut(*paths), workers)
            else:
                texts = [
                    read_text(path, piece.format, piece.encoding, column)
                    for path, column in zip(paths, columns)
                ]
                yield from in_parts(aligned(texts[0], texts[1], paths))


def _make_reader(kind: str, encoding: str, columns: tuple[int, ...]) -> Callable[[Block], Part]:
    """Return the function that reads a block of texts in a format of `LINE_BY_LINE`."""

    def read(block: Block) -> Part:
        sides = [
            encoded(FORMATS[kind](block.read(side, encoding), path, column, block.before))
            for side, ((path, _, _), column) in enumerate(zip(block.places, columns))
        ]
        return Part(tuple(sides), block.lines)

    return read


def _texts(path: Path, pattern: str) -> list[Path]:
    """Return the text files of a source: itself, or its unpacked members."""
    if not path.is_dir():
        return [path]
    paths = [path]
    for part in pattern.split(INSIDE):
        paths = [entry for folder in paths for entry in _matching(folder, part)]
    return [path for path in paths if path.is_file()]


def _matching(folder: Path, pattern: str) -> list[Path]:
    entries = {entry.relative_to(folder).as_posix(): entry for entry in folder.rglob("*")}
    return [entry for name, entry in sorted(entries.items()) if matches(name, pattern)]

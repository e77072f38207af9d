"""Corpora published as one plain or gzipped file for each split and language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_prep.download import download
from data_prep.errors import PreparationError
from data_prep.files import read_pairs
from data_prep.sources import check_names, local_files

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class ParallelFiles:
    """Line-aligned files, named STEM.LANGUAGE or STEM.LANGUAGE.gz.

    Attributes:
        mirrors: addresses of folders that hold the files, tried in this order.
        files: published file name -> its SHA-256.
        splits: split -> stem of its files.
    """

    mirrors: tuple[str, ...]
    files: Mapping[str, str]
    splits: Mapping[str, str]

    tools: ClassVar[tuple[str, ...]] = ("pooch",)

    def __post_init__(self) -> None:
        check_names(self.files)

    def _name(self, stem: str, language: str) -> str:
        plain = f"{stem}.{language}"
        return plain if plain in self.files else f"{plain}.gz"

    def check(self, language: str, where: str) -> None:
        """Raise a PreparationError that starts with `where` if a split's file is not listed."""
        for stem in self.splits.values():
            name = self._name(stem, language)
            if name not in self.files:
                raise PreparationError(
                    f"{where}: no file {stem}.{language} or {name} for split {stem}: "
                    f"add it to files, or correct splits"
                )

    def settings(self) -> dict[str, Any]:
        """Return what, beside the files' contents, decides the pairs."""
        return {"splits": dict(self.splits)}

    def fetch(self, folder: Path, local: Path | None, offline: bool) -> dict[str, Path]:
        """Return where each published file lies: in `local` if given, else fetched to `folder`.

        Raises:
            PreparationError: a file is missing, or cannot be had from any mirror.
        """
        if local is not None:
            return local_files(local, self.files)
        return {
            name: download(name, checksum, self.mirrors, folder, offline)
            for name, checksum in self.files.items()
        }

    def pairs(
        self, sources: Mapping[str, Path], source: str, target: str
    ) -> tuple[Mapping[str, Pairs], Mapping[str, Any]]:
        """Return each split's pairs of raw lines, as a stream; there is nothing to note."""

        return {
            split: read_pairs(sources[self._name(stem, source)], sources[self._name(stem, target)])
            for split, stem in self.splits.items()
        }, {}

"""Corpora published as one plain or gzipped file for each split and language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from data_prep.download import download
from data_prep.files import read_pairs
from data_prep.sources import local_files

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

        def path(stem: str, language: str) -> Path:
            plain = f"{stem}.{language}"
            return sources[plain if plain in sources else f"{plain}.gz"]

        return {
            split: read_pairs(path(stem, source), path(stem, target))
            for split, stem in self.splits.items()
        }, {}

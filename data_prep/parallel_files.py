"""Corpora published as one plain or gzipped file for each split and language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.download import download
from data_prep.errors import PreparationError
from data_prep.files import read_pairs, sha256
from data_prep.progress import say

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

    def settings(self) -> dict[str, Any]:
        """Return what, beside the files' contents, decides the pairs."""
        return {"splits": dict(self.splits)}

    def fetch(self, folder: Path, local: Path | None, offline: bool) -> dict[str, Path]:
        """Return where each published file lies: in `local` if given, else fetched to `folder`.

        Raises:
            PreparationError: a file is missing, or cannot be had from any mirror.
        """
        if local is not None:
            return {name: self._local(local, name) for name in self.files}
        return {
            name: download(name, checksum, self.mirrors, folder, offline)
            for name, checksum in self.files.items()
        }

    def _local(self, local: Path, name: str) -> Path:
        candidates = [local / name, local / name.removesuffix(".gz")]
        for path in candidates:
            if path.is_file():
                # D: one's own files are allowed, but never pass for the published ones.
                if path.suffix == ".gz" and sha256(path) != self.files[name]:
                    say(
                        f"  note: {path} is not the published file (SHA-256 differs); used as it is"
                    )
                return path
        raise PreparationError(
            f"--data {local}: neither {candidates[0].name} nor {candidates[1].name} is there; "
            f"it must hold {', '.join(self.files)} (gzipped or plain)"
        )

    def pairs(self, sources: Mapping[str, Path], source: str, target: str) -> dict[str, Pairs]:
        """Return each split's pairs of raw lines, as a stream."""

        def path(stem: str, language: str) -> Path:
            plain = f"{stem}.{language}"
            return sources[plain if plain in sources else f"{plain}.gz"]

        return {
            split: read_pairs(path(stem, source), path(stem, target))
            for split, stem in self.splits.items()
        }

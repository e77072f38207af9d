"""The folder that data preparation writes, as launches and reports read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from msgspec import field

from capsnmt import records
from capsnmt.cli import ConfigurationError

MANIFEST = "manifest.json"


class FileRecord(records.Record, frozen=True, kw_only=True):
    """A file of the folder; lines and tokens only of a text."""

    sha256: str
    lines: Optional[int] = None
    tokens: Optional[int] = None


class DataManifest(records.Record, frozen=True, kw_only=True):
    """What data preparation recorded about a corpus.

    It holds nothing that differs between two runs of one command: no time, no host.

    Attributes:
        recipe: what decides what is made of the sources, see `capsnmt.corpora.recipe.Recipe`.
        description: the corpus in words.
        command: command that prepares the corpus.
        pair: SOURCE-TARGET.
        pairs: number of training pairs in the data-bin.
        subsets: split -> fairseq subset.
        tokenisers: language -> tokeniser.
        segmentation: how words were split into subwords: ``method``, ``size``, ``joint``.
        models: language -> file of the subword model, relative to the folder.
        dropped: step -> number of training pairs kept, and dropped by reason.
        tools: distribution -> version.
        sources: name of a source file -> its SHA-256.
        files: file, relative to the folder -> its record.
    """

    recipe: Dict[str, Any] = field(default_factory=dict)
    description: str = ""
    command: str = ""
    pair: str = ""
    pairs: int = 0
    subsets: Dict[str, str] = field(default_factory=dict)
    tokenisers: Dict[str, str] = field(default_factory=dict)
    segmentation: Dict[str, Any] = field(default_factory=dict)
    models: Dict[str, str] = field(default_factory=dict)
    dropped: Dict[str, Dict[str, int]] = field(default_factory=dict)
    tools: Dict[str, str] = field(default_factory=dict)
    sources: Dict[str, str] = field(default_factory=dict)
    files: Dict[str, FileRecord] = field(default_factory=dict)

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target."""
        source, _, target = self.pair.partition("-")
        return source, target

    @property
    def method(self) -> str:
        """How words were split into subwords: ``bpe`` or ``sentencepiece``."""
        return str(self.segmentation.get("method", ""))

    @property
    def lines(self) -> Mapping[str, int]:
        """Text file -> number of lines."""
        return {name: file.lines for name, file in self.files.items() if file.lines is not None}


@dataclass(frozen=True)
class PreparedData:
    """A folder that ``capsnmt-prepare`` wrote."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """The record of the folder; it is written last: where it exists, all is complete."""
        return self.folder / MANIFEST

    @property
    def binarised(self) -> Path:
        """The data-bin of fairseq."""
        return self.folder / "bin"

    def dictionary(self, language: str) -> Path:
        """The dictionary of a language."""
        return self.binarised / f"dict.{language}.txt"

    def raw(self, split: str, language: str) -> Path:
        """The text of a split as it was published, to score against."""
        return self.folder / "raw" / f"{split}.{language}"

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target."""
        return self.read_manifest().languages

    @property
    def test_sets(self) -> Dict[str, str]:
        """Test set -> its fairseq subset."""
        subsets = self.read_manifest().subsets
        return {name: subset for name, subset in subsets.items() if subset.startswith("test")}

    @property
    def pairs(self) -> int:
        """The number of training pairs."""
        return self.read_manifest().pairs

    def read_manifest(self) -> DataManifest:
        """Read the manifest."""
        try:
            return records.read(self.manifest, DataManifest)
        except records.RecordError as error:
            raise ConfigurationError(
                f"{error}: it is damaged or was made by another version of capsnmt: give another "
                f"folder, or delete this one and prepare the corpus again"
            ) from None

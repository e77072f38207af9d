"""The folder that data preparation writes, as launches and reports read it."""

import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from msgspec import field

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.recipe import Tokeniser
from capsnmt.files import sha256

MANIFEST = "manifest.json"
SUBWORDS = {"bpe": "subword_nmt", "sentencepiece": "sentencepiece"}
"""Method of segmentation -> fairseq's name of its subwords."""
MAKE = "make it by capsnmt-prepare, or link it if it was moved"


class FileRecord(records.Record, frozen=True, kw_only=True):
    """A file of the folder; lines and tokens only of a text."""

    sha256: str
    lines: Optional[int] = None
    tokens: Optional[int] = None


class DataManifest(records.Record, frozen=True, kw_only=True):
    """What data preparation recorded about a corpus.

    It holds nothing that differs between two runs of one command: no time, no host.
    """

    # what decides what is made of the sources, see capsnmt.corpora.recipe.Recipe
    recipe: Dict[str, Any] = field(default_factory=dict)
    description: str = ""
    command: str = ""
    pair: str = ""  # SOURCE-TARGET
    pairs: int = 0  # of the training set in the data-bin
    subsets: Dict[str, str] = field(default_factory=dict)  # split -> fairseq subset
    tokenisers: Dict[str, Tokeniser] = field(default_factory=dict)  # of raw text, by language
    segmentation: Dict[str, Any] = field(default_factory=dict)  # method, size, joint
    models: Dict[str, str] = field(default_factory=dict)  # language -> file of the subword model
    dropped: Dict[str, Dict[str, int]] = field(default_factory=dict)  # step -> pairs by verdict
    known: Dict[str, int] = field(default_factory=dict)  # split -> its pairs that are trained on
    tools: Dict[str, str] = field(default_factory=dict)  # distribution -> version
    sources: Dict[str, str] = field(default_factory=dict)  # source file -> SHA-256
    files: Dict[str, FileRecord] = field(default_factory=dict)  # relative to the folder

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target."""
        source, _, target = self.pair.partition("-")
        return source, target

    @property
    def test_sets(self) -> Dict[str, str]:
        """Test set -> its fairseq subset."""
        return {name: subset for name, subset in self.subsets.items() if subset.startswith("test")}

    @property
    def subwords(self) -> str:
        """fairseq's name of the subwords."""
        return SUBWORDS.get(self.segmentation.get("method", ""), "subword_nmt")

    @property
    def lines(self) -> Mapping[str, int]:
        """Text file -> number of lines."""
        return {name: file.lines for name, file in self.files.items() if file.lines is not None}


class PreparedData:
    """A folder that ``capsnmt-prepare`` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / MANIFEST  # written last: where it exists, all is complete
        self.binarised = folder / "bin"  # the data-bin of fairseq

    def is_complete(self) -> bool:
        """Return whether all is there that a launch reads; other text may be deleted."""
        return self.manifest.exists() and all(
            (self.folder / name).exists()
            for name in self.read_manifest().files
            if re.match(r"bin/|raw/(?!train\.)", name)
        )

    def check(self, flag: str = "") -> None:
        """Raise unless data were prepared here; ``flag`` is what names the folder."""
        if not self.manifest.is_file():
            above = self.folder.parent
            fix = f"give {above}" if (above / MANIFEST).is_file() else MAKE
            raise ConfigurationError(
                f"{flag}{self.folder} has no prepared data ({MANIFEST}); {fix}"
            )

    def dictionary(self, language: str) -> Path:
        """The dictionary of a language."""
        return self.binarised / f"dict.{language}.txt"

    def raw(self, split: str, language: str) -> Path:
        """The text of a split as it was published."""
        return self.folder / "raw" / f"{split}.{language}"

    def references(self, split: str, language: str, stage: str = "raw") -> List[Path]:
        """The references of a test set: to score against, or ``tokenised`` for tokenised BLEU.

        The manifest says whether there are more than one.
        """
        first = f"{stage}/{split}.{language}"
        more = (name for name in self._files() if name.startswith(f"{first}."))
        return [self.folder / name for name in (first, *more)]

    def edited(self) -> List[str]:
        """What a launch reads beside the training set and is not as it was prepared."""
        return [
            name
            for name, known in self._files().items()
            if re.match(r"(bin|raw|tokenised)/(?!train\.)", name)
            if (self.folder / name).is_file() and sha256(self.folder / name) != known.get("sha256")
        ]

    def _files(self) -> Dict[str, Dict[str, Any]]:
        """The files of the manifest, which an older version may have made."""
        known = records.read(self.manifest, dict) if self.manifest.is_file() else {}
        kind, where = Dict[str, Dict[str, Any]], f"{self.manifest}, files"
        return records.build(known.get("files", {}), kind, where)

    def read_manifest(self) -> DataManifest:
        """Read the manifest."""
        self.check()
        try:
            return records.read(self.manifest, DataManifest)
        except records.RecordError as error:
            raise ConfigurationError(
                f"{error}; it is damaged or was made by another version of capsnmt; give another "
                f"folder, or delete this one and prepare the corpus again"
            ) from None

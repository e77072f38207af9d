"""The folder that data preparation writes, as experiments and reports read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.manifest import NAME


@dataclass(frozen=True)
class DataManifest:
    """What data preparation recorded about a corpus.

    Attributes:
        description: the corpus in words; empty if the recipe has no description.
        command: command that prepares the corpus; empty if it was not recorded.
        lines: text file -> number of lines.
        languages: source and target; empty texts if they were not recorded.
        tokenisers: language -> tokeniser of the recipe.
        method: how words were split into subwords: ``bpe`` or ``sentencepiece``.
        models: language -> file of the subword model, relative to the folder.
    """

    description: str
    command: str
    lines: Mapping[str, int]
    languages: Tuple[str, str]
    tokenisers: Mapping[str, str]
    method: str
    models: Mapping[str, str]


@dataclass(frozen=True)
class PreparedData:
    """A folder that ``capsnmt-prepare`` wrote."""

    folder: Path

    @property
    def manifest(self) -> Path:
        """The record of how each file was made; it is written last."""
        return self.folder / NAME

    @property
    def binarised(self) -> Path:
        """The data-bin of fairseq."""
        return self.folder / "bin"

    def dictionary(self, language: str) -> Path:
        """The dictionary of a language."""
        return self.binarised / f"dict.{language}.txt"

    def raw(self, test_set: str, language: str) -> Path:
        """The text of a test set as it was published."""
        return self.folder / "raw" / f"{test_set}.{language}"

    def read_manifest(self) -> DataManifest:
        """Read the manifest.

        Raises:
            ConfigurationError: it is missing or damaged.
        """
        value = records.load(self.manifest)
        try:
            steps = value.get("steps", {})
            source, _, target = str(value.get("pair") or "").partition("-")
            learnt = steps.get("learn subwords", {}).get("settings", {})
            return DataManifest(
                str(value.get("description") or ""),
                str(value.get("command") or ""),
                _lines(steps),
                (source, target),
                _tokenisers(steps),
                str(learnt.get("method") or ""),
                _models(learnt.get("texts", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"{self.manifest}: not a manifest of capsnmt-prepare: prepare the corpus again"
            ) from None


def _lines(steps: Mapping[str, Any]) -> Dict[str, int]:
    return {
        name: int(file["lines"])
        for step in steps.values()
        for name, file in step.get("files", {}).items()
        if "lines" in file
    }


def _tokenisers(steps: Mapping[str, Any]) -> Dict[str, str]:
    settings = [step["settings"] for name, step in steps.items() if name.startswith("tokenise ")]
    return {str(each["language"]): str(each["tokeniser"]) for each in settings}


def _models(texts: Mapping[str, Any]) -> Dict[str, str]:
    """Return language -> model, from model -> the texts that it was learnt from."""
    return {text.rpartition(".")[2]: model for model, names in texts.items() for text in names}

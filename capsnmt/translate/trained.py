"""Trained translation models: where their files are, and how their text was prepared."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple

from capsnmt.cli import ConfigurationError, shown
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import sha256
from capsnmt.lines import read_lines
from capsnmt.runs.finished import FinishedRun
from capsnmt.translate.tokenizer import NAME

# method of data preparation -> fairseq's name of it, and of the option for the model
SUBWORDS = {
    "bpe": ("subword_nmt", "bpe_codes"),
    "sentencepiece": ("sentencepiece", "sentencepiece_model"),
}


@dataclass(frozen=True)
class TextFormat:
    """How raw text becomes the subwords of a model, and back.

    Attributes:
        languages: source and target.
        tokenisers: of source and target, as in the recipe of the data.
        method: ``bpe`` or ``sentencepiece``.
        model: the merge operations or the sentencepiece model of the source language.
    """

    languages: Tuple[str, str]
    tokenisers: Tuple[str, str]
    method: str
    model: Path

    @property
    def settings(self) -> Dict[str, Any]:
        """The settings of fairseq's ``--tokenizer`` and ``--bpe``."""
        bpe, option = SUBWORDS[self.method]
        return {
            "tokenizer": NAME,
            "source_lang": self.languages[0],
            "target_lang": self.languages[1],
            "source_tokeniser": self.tokenisers[0],
            "target_tokeniser": self.tokenisers[1],
            "bpe": bpe,
            option: str(self.model),
        }


@dataclass(frozen=True)
class TrainedModel:
    """A trained translation model.

    Attributes:
        checkpoint: its parameters.
        data: the folder that ``capsnmt-prepare`` wrote, with the dictionaries.
        text: how text is tokenised and segmented.
        generation: the settings of fairseq-generate in the configuration of the run.
    """

    checkpoint: Path
    data: PreparedData
    text: TextFormat
    generation: Mapping[str, Any] = field(default_factory=dict)


def find_model(path: Path, data: Optional[Path] = None) -> TrainedModel:
    """Find the files of a trained model.

    Args:
        path: the folder of a finished run, or a checkpoint of fairseq-train.
        data: a folder that ``capsnmt-prepare`` wrote; by default that of the run's training.

    Raises:
        ConfigurationError: there is no such run or checkpoint, the run is not finished or does not
            translate, or the data are missing or others.
    """
    return _of_checkpoint(path, data) if path.is_file() else _of_run(FinishedRun(path), data)


def _of_run(run: FinishedRun, data: Optional[Path]) -> TrainedModel:
    if run.config.classifies:
        raise ConfigurationError(
            f"{run.folder}: it classifies sentences: give a run that translates"
        )
    prepared = PreparedData(data or run.data)
    text = read_text_format(prepared, run.config.languages)
    _check_dictionaries(run, prepared)
    return TrainedModel(run.model, prepared, text, _generation(run))


def _of_checkpoint(path: Path, data: Optional[Path]) -> TrainedModel:
    if data is None:
        raise ConfigurationError(
            f"{path}: is not the folder of a run: give its data, too, the folder of "
            "capsnmt-prepare (--data)"
        )
    prepared = PreparedData(data)
    return TrainedModel(path, prepared, read_text_format(prepared))


def read_text_format(data: PreparedData, languages: Optional[Tuple[str, str]] = None) -> TextFormat:
    """Read how the text of prepared data was tokenised and segmented.

    Args:
        data: the folder.
        languages: source and target; by default those of the manifest.

    Raises:
        ConfigurationError: the folder, its records or a file are missing, or the languages are
            others.
    """
    if not data.manifest.is_file():
        raise ConfigurationError(
            f"{data.folder}: holds no prepared data (manifest.json): give the folder of "
            "capsnmt-prepare (--data)"
        )
    manifest = data.read_manifest()
    if not manifest.tokenisers or manifest.method not in SUBWORDS:
        raise ConfigurationError(
            f"{data.manifest}: does not record how text is tokenised and segmented: prepare the "
            "corpus with capsnmt-prepare"
        )
    source, target = languages or manifest.languages
    for language in (source, target):
        if language not in manifest.tokenisers or language not in manifest.models:
            raise ConfigurationError(
                f"{data.folder}: holds {'-'.join(manifest.languages)}, not {source}-{target}: give "
                "the data of the training (--data)"
            )
    model = data.folder / manifest.models[source]
    for path in (model, data.dictionary(source), data.dictionary(target)):
        if not path.is_file():
            raise ConfigurationError(
                f"{path}: is missing: copy it from the machine of the training, or give another "
                "folder (--data)"
            )
        if path != model:
            for _ in read_lines(path):  # raises one line; fairseq a traceback if it is not UTF-8
                pass
    tokenisers = manifest.tokenisers[source], manifest.tokenisers[target]
    return TextFormat((source, target), tokenisers, manifest.method, model)


def _check_dictionaries(run: FinishedRun, data: PreparedData) -> None:
    """Raise if a dictionary is not that of the training."""
    for language in run.config.languages:
        dictionary = data.dictionary(language)
        if run.training.vocabulary.get(dictionary.name) != sha256(dictionary):
            raise ConfigurationError(
                f"{dictionary}: is not the dictionary that {run.folder} was trained with: give the "
                "data of the training (--data)"
            )


def _generation(run: FinishedRun) -> Dict[str, Any]:
    """Return the run's settings of fairseq-generate as fairseq names them in Python."""
    flags = dict(run.config.settings.get("generate") or {})
    overrides = flags.pop("model-overrides", "{}")
    try:
        changes = ast.literal_eval(overrides)
        return {**{name.replace("-", "_"): value for name, value in flags.items()}, **changes}
    except (SyntaxError, TypeError, ValueError):
        raise ConfigurationError(
            f"{run.folder.config}: generate.model-overrides: {shown(overrides)} is no dictionary"
        ) from None

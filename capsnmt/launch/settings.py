"""Settings: what a row sets in its files, and what the command line overrides.

Each file is checked as it is read, so that an error names the file and the key. Files and flags are
merged as mappings; ``null`` removes a key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Dict, Literal, Mapping, Optional, Union

from msgspec import Meta, field

from capsnmt import records
from capsnmt.cli import ConfigurationError, shown
from capsnmt.files import check_file_name
from capsnmt.records import Record
from capsnmt.runs.records import SENTENCE_TASKS

MAPPINGS = ("data", "batch", "train", "average", "generate", "test-sets", "options")
# What a row cannot do without.
NEEDED = ("dataset", "arch", "precision")
BY_A_CLASSIFIER = ("batch.sentences-per-update", "batch.max-sentences")
BY_A_TRANSLATION = (
    *("data.source-lang", "data.target-lang", "data.test-sets"),
    *("batch.tokens-per-update", "batch.max-tokens", "train.max-update"),
)
COUNTS = ("max-update", "max-epoch", "save-interval-updates")  # flags that are reckoned with
Count = Annotated[int, Meta(ge=1)]
Line = Annotated[str, Meta(pattern=r"^[^\0\r\n]*\Z")]  # it becomes a word of a script
Flag = Union[Line, int, float, bool, None]
Flags = Dict[Line, Flag]


class Data(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What is read."""

    # of capsnmt-prepare, or the command that makes the data of a sentence classifier
    recipe: Optional[Line] = None
    corpora: Optional[Line] = None  # of the recipe, that are trained on; all by default
    source_lang: Optional[Line] = None
    target_lang: Optional[Line] = None
    test_sets: Dict[Line, Optional[Line]] = field(default_factory=dict)  # name -> fairseq subset
    tasks: Optional[Line] = None  # of probing, separated by commas; all by default
    options: Flags = field(default_factory=dict)  # of the command that makes a classifier's data


class Batch(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The size of an update, over all devices, and what one device takes at a time."""

    tokens_per_update: Optional[Count] = None
    max_tokens: Optional[Count] = None
    sentences_per_update: Optional[Count] = None
    max_sentences: Optional[Count] = None


class Score(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Flags of ``capsnmt-evaluate``; the last two need a baseline."""

    remove_bpe: Optional[Line] = None
    detokenize: Optional[Line] = None
    tokenized: Optional[bool] = None  # the text is published as tokens: scored as they are
    significance: Optional[Literal["bootstrap", "approximate-randomization"]] = None
    samples: Optional[Count] = None


class Settings(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The settings of a row."""

    dataset: Optional[Line] = None  # names the folder of the runs
    arch: Optional[Line] = None
    init_from: Optional[Line] = None  # the row whose model the training starts from
    precision: Optional[Literal["fp32", "fp16", "bf16", "auto"]] = None
    data: Data = Data()
    batch: Batch = Batch()
    train: Flags = field(default_factory=dict)  # of fairseq-train
    # how many checkpoints are averaged; at most one of the ways
    average: Dict[Literal["last-updates", "last-epochs", "best"], Optional[Count]] = field(
        default_factory=dict
    )
    generate: Flags = field(default_factory=dict)  # of fairseq-generate
    score: Optional[Score] = None

    @property
    def classifies(self) -> bool:
        """Whether the row trains a sentence classifier; otherwise it translates."""
        return self.train.get("task") in SENTENCE_TASKS


class SettingsFile(Settings, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A file of settings."""

    extends: Optional[Line] = None  # the file that it changes: a sibling, or DATASET/ROW
    paper: Optional[Dict[str, Any]] = None  # what papers report of the row; no run depends on it


def merge(settings: Dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Merge changes into settings; ``None`` removes a key."""
    for key, value in changes.items():
        if isinstance(value, dict):
            inner = settings.setdefault(key, {})
            merge(inner, value)
        elif value is None:
            settings.pop(key, None)
        else:
            settings[key] = value


def override(settings: Dict[str, Any], key: str, value: Any, origin: str) -> None:
    """Set a dotted key.

    >>> settings = {"train": {"lr": 0.005}}
    >>> override(settings, "train.lr", 0.003, "--set")
    >>> settings
    {'train': {'lr': 0.003}}
    """
    changes = value
    for part in reversed(key.split(".")):
        changes = {part: changes}
    records.build(_without_removed(changes), Settings, origin)
    merge(settings, changes)


def assign(settings: Dict[str, Any], assignment: str) -> None:
    """Apply ``KEY=VALUE`` of ``--set``; the value is YAML, ``null`` removes the key."""
    key, equals, text = assignment.partition("=")
    if not key or not equals or not text.strip():  # such as a variable of the shell that is not set
        raise ConfigurationError(
            f"--set {shown(assignment)[1:-1]}: give KEY=VALUE, for example --set train.lr=0.003; "
            f"null removes the key"
        )
    try:
        value = records.parse_yaml(text, "--set")
    except records.RecordError:  # a text such as @name, which YAML reserves
        value = text
    override(settings, key, value, "--set")


def complete(settings: Mapping[str, Any], row: str) -> Settings:
    """Return the settings of a row."""
    made = records.build(settings, Settings, row)
    for key in (*NEEDED, *(BY_A_CLASSIFIER if made.classifies else BY_A_TRANSLATION)):
        section, _, name = key.rpartition(".")
        if not (settings.get(section, {}) if section else settings).get(name):
            raise ConfigurationError(
                f"{row}: {key} is not set: add it to the configuration or give --set {key}=VALUE"
            )
    if not made.classifies and made.data.source_lang == made.data.target_lang:
        raise ConfigurationError(
            f"{row}: data.target-lang: {made.data.target_lang}: is the source language, too: give "
            f"two languages"
        )
    for flag in COUNTS:
        if type(made.train.get(flag, 0)) is not int:
            raise ConfigurationError(
                f"{row}: train.{flag}: {shown(made.train[flag])}: give a whole number"
            )
    if len(made.average) > 1:
        raise ConfigurationError(
            f"{row}: average: {', '.join(made.average)}: choose one of them and set the others to "
            f"null"
        )
    check_file_name(str(made.dataset), f"{row}: dataset")
    for name in made.data.test_sets:
        check_file_name(name, f"{row}: data.test-sets.{name}")
    return made


def read(path: Path) -> Dict[str, Any]:
    """Return the content of a file of settings, checked."""
    settings = records.load(path)
    records.build(_without_removed(settings), SettingsFile, path)
    return dict(settings)


def _without_removed(settings: Any) -> Any:
    """Return settings without the mappings that ``null`` removes: their classes allow no null."""
    if not isinstance(settings, dict):
        return settings
    return {
        key: {} if value is None and key in MAPPINGS else _without_removed(value)
        for key, value in settings.items()
    }

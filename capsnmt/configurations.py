"""Settings: what a row may set, in its YAML files, and what the command line overrides.

Each file is checked as it is read, so that an error names the file and the key. Files and flags are
merged as mappings; ``null`` removes a key.
"""

import ast
import difflib
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Mapping, Optional, Tuple, Union

from msgspec import Meta, field

from capsnmt import records
from capsnmt.cli import ConfigurationError, shown
from capsnmt.evaluation.scores import Method
from capsnmt.files import bundled_folder, check_file_name
from capsnmt.records import Record

# The values of train.task that train a sentence classifier.
SENTENCE_TASKS = ("probing", "logical_inference")
Count = Annotated[int, Meta(ge=1)]
Line = Annotated[str, Meta(pattern=r"^[^\0\r\n]*\Z")]  # it becomes a word of a script
TestSet = Annotated[str, Meta(pattern=r"^(?!mean\Z)[^\0\r\n]*\Z")]  # the mean is over several
Flag = Union[Line, int, float, bool, None]
Flags = Dict[Line, Flag]
HYDRA = "hydra"  # files for fairseq-hydra-train
LISTED = 8  # names that fit into one line of an error
MAPPINGS = ("data", "batch", "train", "average", "generate", "test-sets", "options")
# What a row cannot do without.
NEEDED = ("dataset", "arch", "precision")
BY_A_CLASSIFIER = ("batch.sentences-per-update", "batch.max-sentences")
BY_A_TRANSLATION = (
    *("data.source-lang", "data.target-lang", "data.test-sets"),
    *("batch.tokens-per-update", "batch.max-tokens", "train.max-update"),
)
# What only one of them reads.
OF_A_CLASSIFIER = (*BY_A_CLASSIFIER, "data.tasks", "data.options")
OF_A_TRANSLATION = (*BY_A_TRANSLATION[:-1], "data.corpora", "average", "generate", "score")


class Data(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What is read."""

    # of capsnmt-prepare, or the command that makes the data of a sentence classifier
    recipe: Optional[Line] = None
    corpora: Optional[Line] = None  # of the recipe, that are trained on; all by default
    source_lang: Optional[Line] = None
    target_lang: Optional[Line] = None
    test_sets: Dict[TestSet, Optional[Line]] = field(default_factory=dict)  # name -> fairseq subset
    tasks: Optional[Line] = None  # of probing, separated by commas; all by default
    options: Flags = field(default_factory=dict)  # of the command that makes a classifier's data


class BatchSize(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The size of an update, over all devices, and what one device takes at a time."""

    tokens_per_update: Optional[Count] = None
    max_tokens: Optional[Count] = None
    sentences_per_update: Optional[Count] = None
    max_sentences: Optional[Count] = None


class Scoring(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Flags of ``capsnmt-evaluate``; the last two need a baseline."""

    remove_bpe: Optional[Line] = None
    detokenize: Optional[Line] = None
    metrics: Optional[Line] = None
    tokenized: Optional[bool] = None  # the text is published as tokens: scored as they are
    significance: Optional[Method] = None
    samples: Optional[Count] = None


class Settings(Record, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The settings of a row."""

    dataset: Optional[Line] = None  # names the folder of the runs
    arch: Optional[Line] = None
    init_from: Optional[Line] = None  # the row whose model the training starts from
    precision: Optional[Literal["fp32", "fp16", "bf16", "auto"]] = None
    data: Data = Data()
    batch: BatchSize = BatchSize()
    train: Flags = field(default_factory=dict)  # of fairseq-train
    # how many checkpoints are averaged; at most one of the ways
    average: Dict[Literal["last-updates", "last-epochs", "best"], Optional[Count]] = field(
        default_factory=dict
    )
    generate: Flags = field(default_factory=dict)  # of fairseq-generate
    score: Optional[Scoring] = None

    @property
    def classifies(self) -> bool:
        """Whether the row trains a sentence classifier; otherwise it translates."""
        return self.train.get("task") in SENTENCE_TASKS

    @property
    def updates(self) -> Optional[int]:
        """The updates of the whole training; ``None`` if epochs or patience end it."""
        updates = self.train.get("max-update")
        return None if updates is None else int(updates)

    @property
    def model_overrides(self) -> Dict[str, Any]:
        """What the generation changes in the settings of the trained model."""
        text = str(self.generate.get("model-overrides", "{}"))
        try:
            return dict(ast.literal_eval(text))
        except (SyntaxError, TypeError, ValueError):
            raise ConfigurationError(
                f"generate.model-overrides is {shown(text)}; give settings as Python writes them, "
                "such as {'max_source_positions': 1024}"
            ) from None

    @property
    def languages(self) -> Tuple[str, str]:
        """Source and target language of a row that translates."""
        return str(self.data.source_lang), str(self.data.target_lang)


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


def value_of(text: str) -> Any:
    """Return the value of a flag's text: YAML, or a text such as @name, which YAML reserves."""
    try:
        return records.parse_yaml(text, "")
    except records.RecordError:
        return text


def override(settings: Dict[str, Any], key: str, value: Any, origin: str) -> None:
    """Set a dotted key.

    >>> settings = {"train": {"lr": 0.005}}
    >>> override(settings, "train.lr", 0.003, "--set")
    >>> settings
    {'train': {'lr': 0.003}}
    """
    changes = value
    for part in reversed(key.split(".", 2)):  # no key is deeper; the name of a test set may have .
        changes = {part: changes}
    records.build(_without_removed(changes), Settings, origin)
    _find_recipe(changes, Path())
    merge(settings, changes)


def assign(settings: Dict[str, Any], assignment: str) -> None:
    """Apply ``KEY=VALUE`` of ``--set``; the value is YAML, ``null`` removes the key."""
    key, equals, text = assignment.partition("=")
    if not key or not equals or not text.strip():  # such as a variable of the shell that is not set
        raise ConfigurationError(
            f"--set {shown(assignment)[1:-1]} is not KEY=VALUE; give such as train.lr=0.003, where "
            f"null removes a key"
        )
    value = value_of(text)
    section, _, flag = key.partition(".")
    if section in ("train", "generate") and flag and isinstance(value, dict):
        value = text.strip()  # JSON, which fairseq reads itself
    override(settings, key, value, "--set")


def resolve(settings: Mapping[str, Any], row: str) -> Settings:
    """Return the settings of a row."""
    made = records.build(settings, Settings, row)
    for key in (*NEEDED, *(BY_A_CLASSIFIER if made.classifies else BY_A_TRANSLATION)):
        if not _value(settings, key):
            raise ConfigurationError(
                f"{row}: {key} is not set; add it to the configuration or give --set {key}=VALUE"
            )
    for key in OF_A_TRANSLATION if made.classifies else OF_A_CLASSIFIER:
        if _value(settings, key):
            kind = "sentence classifier" if made.classifies else "translation"
            raise ConfigurationError(f"{row}: {key} has no effect on a {kind}; drop it")
    if len(made.average) > 1:
        raise ConfigurationError(
            f"{row}: average has {', '.join(made.average)}; choose one of them and set the others "
            f"to null"
        )
    check_file_name(str(made.dataset), f"{row}: dataset")
    for name in made.data.test_sets:
        check_file_name(name, f"{row}: data.test-sets.{name}")
    return made


def _value(settings: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; ``None`` if it is not set."""
    section, _, name = key.rpartition(".")
    return (settings.get(section, {}) if section else settings).get(name)


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


def load(path: Path, children: Tuple[Path, ...] = ()) -> Dict[str, Any]:
    """Return the settings in a file on top of all it extends, as a mapping.

    The ``children`` extend it, each the next.
    """
    settings = read(path)
    settings.pop("paper", None)
    parent = settings.pop("extends", None)
    _find_recipe(settings, path.parent)
    family = (*children, path)
    merged = {} if parent is None else load(find(parent, f"{path}: extends:", family), family)
    merge(merged, settings)
    return merged


def _find_recipe(settings: Mapping[str, Any], folder: Path) -> None:
    """Make the recipe absolute if it is a file, which is relative to a folder."""
    recipe = (settings.get("data") or {}).get("recipe")
    if recipe is not None and recipe.endswith(".yaml"):
        settings["data"]["recipe"] = str((folder / recipe).absolute())


def find(
    name: str, flag: str = "--config", family: Tuple[Path, ...] = (), dataset: Optional[str] = None
) -> Path:
    """Return the file of a configuration: a path, ``DATASET/ROW``, or ``ROW`` of a data set.

    A file that another one extends may be a sibling of the last of its ``family``, and is none of
    them: ./configs/multi30k/base.yaml may extend the multi30k/base of the project.
    """
    folders = configuration_folders()
    beside = family[-1].parent if family else Path()
    paths = [beside / name] if name.endswith((".yaml", ".yml")) else []
    paths += [beside / f"{name}.yaml"] if family else []
    for full_name in [f"{dataset}/{name}", name] if dataset else [name]:
        paths += [folder / f"{full_name}.yaml" for folder in folders]
    for path in paths:
        if path.is_file() and not any(path.samefile(child) for child in family):
            return path
    valid = available(dataset)
    siblings = {path for child in family for path in child.parent.glob("*.yaml")} - {*family}
    similar = sorted(path.stem for path in siblings)
    similar += difflib.get_close_matches(name, valid, LISTED, cutoff=0)
    raise ConfigurationError(
        f"{flag} {name} is no {'other ' if family else ''}configuration; give the path of a YAML "
        f"file or one of the {len(valid)} in {' and '.join(map(str, folders))}, such as "
        f"{', '.join(similar[:LISTED])}"
    )


def configuration_folders() -> List[Path]:
    """Return the folders of named configurations: the user's ``./configs``, then the project's."""
    folders = [Path("configs"), bundled_folder("configs")]
    if folders[0].is_dir() and folders[0].resolve() != folders[1].resolve():
        return folders
    return folders[1:]


def available(dataset: Optional[str] = None) -> List[str]:
    """Return the names ``DATASET/ROW`` of all configurations, or of a data set."""
    every = {
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in configuration_folders()
        for path in folder.glob("*/*.yaml")
        if path.parent.name != HYDRA
    }
    names = sorted(name for name in every if dataset is None or name.startswith(f"{dataset}/"))
    if not names:
        datasets = sorted({name.split("/")[0] for name in every})
        raise ConfigurationError(f"--dataset {dataset}: choose from {', '.join(datasets)}")
    return names


def rows_of(dataset: str) -> List[str]:
    """Return the rows of a data set: its configurations, except those that only others extend.

    A configuration may extend one of its own name: that of the project, or of another data set.
    """
    files = {name.split("/")[1]: read(find(name)) for name in available(dataset)}
    extended = {
        parent.removeprefix(f"{dataset}/")
        for name, settings in files.items()
        if (parent := str(settings.get("extends"))) not in (name, f"{dataset}/{name}")
    }
    return [name for name, settings in files.items() if "paper" in settings or name not in extended]

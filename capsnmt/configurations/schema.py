"""What the settings of a row are: the keys of a configuration, and what each may hold."""

from __future__ import annotations

import ast
from typing import Annotated, Any, Dict, Literal, Optional, Tuple, Union

from msgspec import Meta, field

from capsnmt.cli import ConfigurationError, shown
from capsnmt.evaluation.scores import Method
from capsnmt.records import Record

# The values of train.task that train a sentence classifier.
SENTENCE_TASKS = ("probing", "logical_inference")
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

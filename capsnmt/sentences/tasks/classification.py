"""Base class of the sentence classification tasks: classes, dictionary, encoded splits."""

from __future__ import annotations

import functools
import logging
from typing import Any, Dict, List, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor

from capsnmt.cli import ConfigurationError
from capsnmt.sentences.dataset import ClassificationDataset
from capsnmt.sentences.examples import SPLITS, Example

logger = logging.getLogger(__name__)


class ClassificationTask(FairseqTask):
    """A task whose examples are one or more sentences with a class.

    Classes and dictionary come from the training data and are saved in the checkpoint, so that
    evaluation does not depend on the training data.
    """

    num_sentences = 1  # of an example
    buckets: Tuple[int, ...] = ()  # all that an example may have

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.state.add_factory("symbols", self.read_symbols)
        self.state.add_factory("classes", self.read_classes)

    @classmethod
    def setup_task(cls, cfg: Any, **_: Any) -> ClassificationTask:
        """Return the task; fairseq-validate adds that its settings are from a checkpoint."""
        return cls(cfg)

    def read_symbols(self) -> List[str]:
        """Return the words of the dictionary in order."""
        raise NotImplementedError

    def read_classes(self) -> List[str]:
        """Return the names of the classes in the order of their indices."""
        raise NotImplementedError

    def read_examples(self, split: str) -> Sequence[Example]:
        """Return the examples of a split."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take dictionary and classes from a checkpoint; they must be those of the data."""
        for name, value in state_dict.items():
            used = self.state.state_dict.get(name, value)
            if used != value:
                raise ConfigurationError(
                    f"the {name} of the checkpoint ({len(value)}) are not those of the data "
                    f"({len(used)}): resume with the data it was trained on, or give another "
                    f"--save-dir"
                )
        super().load_state_dict(state_dict)

    @functools.cached_property
    def source_dictionary(self) -> Dictionary:
        """The dictionary of the encoder."""
        dictionary = Dictionary()
        for symbol in self.state.symbols:
            dictionary.add_symbol(symbol)
        return dictionary

    @property
    def target_dictionary(self) -> None:
        """None: classes are not words."""
        return None

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.state.classes)

    def segment(self, sentence: str) -> List[str]:
        """Split a sentence into tokens."""
        return sentence.split()

    def encode(self, sentence: str) -> Tensor:
        """Return the indices of a sentence's tokens and of the end-of-sentence symbol."""
        dictionary = self.source_dictionary
        tokens = [dictionary.index(token) for token in self.segment(sentence)]
        return torch.tensor([*tokens, dictionary.eos()])

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Read and encode a split: train, valid or test."""
        if split not in SPLITS:
            raise ConfigurationError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
        examples = self.read_examples(split)
        index = {name: number for number, name in enumerate(self.state.classes)}
        for example in examples:
            if example.label not in index:
                known = ", ".join(list(index)[:10]) + (", .." if len(index) > 10 else "")
                example.reject(f"the label {example.label!r} is not in the training data: {known}")
        self.datasets[split] = ClassificationDataset(
            [tuple(map(self.encode, example.sentences)) for example in examples],
            [index[example.label] for example in examples],
            [example.bucket for example in examples],
            self.source_dictionary.pad(),
            shuffle=split == "train",
        )
        logger.info("%s: %s examples, %s classes", split, len(examples), len(index))

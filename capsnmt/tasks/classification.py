"""What the tasks that classify sentences share: classes, dictionary, encoded splits."""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import Tensor

from capsnmt.errors import ConfigurationError
from capsnmt.sentences.examples import ClassificationDataset, Example

logger = logging.getLogger(__name__)

SPLITS = ("train", "valid", "test")


class ClassificationTask(FairseqTask):
    """A task whose examples are sentences with a class.

    Classes and dictionary come from the training data and are kept in the checkpoint, so that a
    checkpoint is evaluated with its own, wherever the training data is then.
    """

    num_sentences = 1
    buckets: Tuple[int, ...] = ()  # all that its examples may have

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.state.add_factory("symbols", self.read_symbols)
        self.state.add_factory("classes", self.read_classes)

    def read_symbols(self) -> List[str]:
        """The words of the dictionary, in its order."""
        raise NotImplementedError

    def read_classes(self) -> List[str]:
        """The names of the classes, in the order of their indices."""
        raise NotImplementedError

    def read_examples(self, split: str) -> Sequence[Example]:
        """The examples of a split.

        Raises:
            ConfigurationError: one line that names the file, and the line where one is wrong.
        """
        raise NotImplementedError

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take dictionary and classes from a checkpoint.

        Raises:
            ConfigurationError: others are in use already, by a model that training would resume.
        """
        for name, value in state_dict.items():
            used = self.state.state_dict.get(name, value)
            if used != value:
                raise ConfigurationError(
                    f"the checkpoint has {len(value)} {name} and these data have {len(used)}, or "
                    f"others: resume with the data it was trained on, or give another --save-dir"
                )
        super().load_state_dict(state_dict)

    @property
    def source_dictionary(self) -> Dictionary:
        """The words that the encoder knows."""
        if not hasattr(self, "_dictionary"):
            self._dictionary = Dictionary()
            for symbol in self.state.symbols:
                self._dictionary.add_symbol(symbol)
        return self._dictionary

    @property
    def target_dictionary(self) -> None:
        """There is none: classes are no words."""
        return None

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.state.classes)

    def segment(self, sentence: str) -> List[str]:
        """The tokens of a sentence."""
        return sentence.split()

    def encode(self, sentence: str) -> Tensor:
        """The indices of a sentence's tokens and of the end-of-sentence symbol."""
        dictionary = self.source_dictionary
        tokens = [dictionary.index(token) for token in self.segment(sentence)]
        return torch.tensor([*tokens, dictionary.eos()])

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Read and encode a split: train, valid or test.

        Raises:
            ConfigurationError: there is no such split, or a line of it is wrong.
        """
        if split not in SPLITS:
            raise ConfigurationError(
                f"there is no split {split!r} in this task: choose from {', '.join(SPLITS)}"
            )
        examples = self.read_examples(split)
        index = {name: number for number, name in enumerate(self.state.classes)}
        for example in examples:
            if example.label not in index:
                known = ", ".join(list(index)[:10]) + (", .." if len(index) > 10 else "")
                example.reject(
                    f"the label {example.label!r} is not one of the training data's: {known}"
                )
        self.datasets[split] = ClassificationDataset(
            [tuple(map(self.encode, example.sentences)) for example in examples],
            [index[example.label] for example in examples],
            [example.bucket for example in examples],
            self.source_dictionary.pad(),
            shuffle=split == "train",
        )
        logger.info("%s: %s examples, %s classes", split, len(examples), len(index))

    def max_positions(self) -> int:
        """No limit of the task's own."""
        return int(1e9)

"""The tasks ``probing`` and ``logical_inference``: classes, dictionary, encoded splits."""

import contextlib
import functools
import io
import logging
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from torch import Tensor

from capsnmt.cli import ConfigurationError, exits_as_errors, say
from capsnmt.forms import SHARE, marks_of
from capsnmt.models.switches import check, switch
from capsnmt.sentences.examples import SPLITS, Example
from capsnmt.sentences.logical_inference import MAX_OPERATORS, RELATIONS, VARIABLES, read_split
from capsnmt.sentences.senteval import TASKS, read_task, require_task

logger = logging.getLogger(__name__)


class ClassificationDataset(FairseqDataset):
    """Encoded examples and their batches.

    The ``src_tokens`` of a batch are ``[n B, L]``: the first sentences of all examples, then the
    second ones, padded on the left like the source of a translation in fairseq.
    """

    def __init__(
        self,
        sentences: Sequence[Tuple[Tensor, ...]],
        labels: Sequence[int],
        buckets: Sequence[int],
        pad: int,
        shuffle: bool,
    ) -> None:
        super().__init__()
        self.sentences = sentences
        self.labels = torch.tensor(labels)
        self.buckets = torch.tensor(buckets)
        self.pad = pad
        self.shuffle = shuffle
        self.sizes = np.array([max(map(len, example)) for example in sentences])

    def __getitem__(self, index: int) -> Dict[str, Any]:
        return {"id": index, "sentences": self.sentences[index]}

    def __len__(self) -> int:
        return len(self.sentences)

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index]) * len(self.sentences[index])

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> Any:
        # by length, to reduce padding; ties are random in training
        order = np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        if not samples:
            return {}
        ids = torch.tensor([sample["id"] for sample in samples])
        lines = [line for row in zip(*(s["sentences"] for s in samples)) for line in row]
        tokens = data_utils.collate_tokens(lines, self.pad, left_pad=True)
        lengths = torch.tensor([len(line) for line in lines])
        return {
            "id": ids,
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": self.labels[ids],
            "bucket": self.buckets[ids],
        }


class ClassificationTask(FairseqTask):
    """A task whose examples are one or more sentences with a class.

    Classes, dictionary and codes of subwords are saved in the checkpoint: evaluation does not
    depend on the data and files of the training. A task adds to ``self.state`` what gives
    ``symbols``, the words of its dictionary in order, and ``classes``, names in the order of their
    indices.
    """

    num_sentences = 1  # of an example
    target_dictionary = None  # classes are not words

    @classmethod
    def setup_task(cls, cfg: Any, **_: Any) -> "ClassificationTask":
        """Return the task; fairseq-validate adds that its settings are from a checkpoint."""
        return cls(cfg)

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
                    f"({len(used)}): resume with the data it was trained on, give another "
                    f"--save-dir, or start from it by --init-from"
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
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.state.classes)

    def segment(self, sentence: str) -> List[str]:
        """Split a sentence into tokens."""
        return sentence.split()

    def encode(self, sentence: str) -> Tensor:
        """Return the indices of a sentence's tokens and of the end-of-sentence symbol."""
        known = self.source_dictionary.encode_line(sentence, self.segment, add_if_not_exist=False)
        return known.long()

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
        if split != "train":
            self._say_known(split, examples)
        self.datasets[split] = ClassificationDataset(
            [tuple(map(self.encode, example.sentences)) for example in examples],
            [index[example.label] for example in examples],
            [example.bucket for example in examples],
            self.source_dictionary.pad(),
            shuffle=split == "train",
        )
        logger.info("%s: %s examples, %s classes", split, len(examples), len(index))

    def _say_known(self, split: str, examples: Sequence[Example]) -> None:
        """Warn of examples that are trained on, with their sentences in either order."""
        with contextlib.suppress(ConfigurationError):  # a folder to evaluate on may have no others
            trained = {frozenset(each.sentences) for each in self.read_examples("train")}
            known = sum(frozenset(each.sentences) in trained for each in examples)
            if known:
                say(
                    f"warning: {self.cfg.data}: {known:,} of {len(examples):,} {split} examples "
                    f"are trained on"
                )


@dataclass
class ProbingConfig(FairseqDataclass):
    """The probing task and its tokenisation."""

    data: str = field(default="", metadata={"help": "folder with SentEval's probing files"})
    probing_task: str = field(default="", metadata={"help": f"probing task: {', '.join(TASKS)}"})
    min_count: int = switch(
        2,
        "rarer words of the training sentences are mapped to the unknown word",
        least=1,
        needs=[{"dictionary": (None,)}],
    )
    dictionary: Optional[str] = switch(
        None, "dict.LANG.txt of fairseq-preprocess, instead of --min-count"
    )
    bpe_codes: Optional[str] = switch(None, "subword-nmt codes for splitting words")


def load_dictionary(path: str) -> List[str]:
    """Return the words of a fairseq dictionary without its special symbols."""
    try:
        dictionary = Dictionary.load(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"--dictionary {path}: not a fairseq dictionary: {reason}"
        ) from None
    return dictionary.symbols[dictionary.nspecial :]


@register_task("probing", dataclass=ProbingConfig)
class ProbingTask(ClassificationTask):
    """SentEval's tasks (Conneau et al. 2018): classify a sentence; its bucket is its length.

    **D**: words that occur once in the training sentences are mapped to the unknown word. Their
    embeddings would hardly be trained, and unknown words of the test set need a trained symbol.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        require_task(cfg.probing_task)
        check(cfg, ProbingConfig)
        self.state.add_factory("symbols", self.read_symbols)
        self.state.add_factory("classes", self.read_classes)
        self.state.add_factory("codes", lambda: Path(cfg.bpe_codes).read_text("utf-8").split("\n"))

    @functools.cached_property
    def bpe(self) -> Callable[[str], str]:
        """What splits a line into subwords, by the codes of the training."""
        if not self.cfg.bpe_codes:
            return str
        from subword_nmt.apply_bpe import BPE

        try:
            with exits_as_errors():
                return BPE(io.StringIO("\n".join(self.state.codes))).process_line
        except (OSError, UnicodeDecodeError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"--bpe-codes {self.cfg.bpe_codes}: {reason}") from None

    def segment(self, sentence: str) -> List[str]:
        return self.bpe(sentence).split()

    def read_symbols(self) -> List[str]:
        sentences = (self.segment(each.sentences[0]) for each in self.read_examples("train"))
        counts = Counter(chain.from_iterable(sentences))
        if self.cfg.dictionary:
            given = f"--dictionary {self.cfg.dictionary}"
            symbols = load_dictionary(self.cfg.dictionary)
            if marks_of(symbols) and not (marks_of(counts) or self.cfg.bpe_codes):
                raise ConfigurationError(
                    f"{given} has subwords, and the sentences have only whole words; give "
                    f"--bpe-codes, or sentences in subwords"
                )
            total = sum(counts.values())
            unknown = total - sum(counts[word] for word in symbols)
            if unknown > SHARE * total:
                say(
                    f"warning: {given} lacks {unknown:,} of the {total:,} words of the training "
                    f"sentences; are they of its language, tokens and case?"
                )
            # its own codes leave these whole; others make other subwords, and know them all as well
            whole = [word for word in symbols if not word.endswith("@@")]
            split = sum(self.segment(word) != [word] for word in whole)
            if split > SHARE * len(whole):
                say(
                    f"warning: --bpe-codes {self.cfg.bpe_codes} split {split:,} of the "
                    f"{len(whole):,} whole words of {given}; give the codes that it was made with"
                )
            return symbols
        frequent = [word for word, count in counts.items() if count >= self.cfg.min_count]
        return sorted(frequent, key=lambda word: (-counts[word], word))

    def read_classes(self) -> List[str]:
        examples = self.read_examples("train")
        labels = sorted({example.label for example in examples})
        if len(labels) < 2:
            raise ConfigurationError(
                f"{examples[0].path}: all training sentences have the label {labels[0]!r}: a "
                f"probing task needs two or more labels"
            )
        return labels

    def read_examples(self, split: str) -> Sequence[Example]:
        return read_task(Path(self.cfg.data), self.cfg.probing_task)[split]

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        if getattr(cfg, "probe_checkpoint", None) and not self.cfg.dictionary:
            raise ConfigurationError(
                f"--probe-checkpoint {cfg.probe_checkpoint} needs the dictionary of its training; "
                f"give --dictionary DATA-BIN/dict.LANG.txt, and --bpe-codes if it had any"
            )
        return super().build_model(cfg, from_checkpoint)


@dataclass
class LogicalInferenceConfig(FairseqDataclass):
    """The data folder and the length of the training sentences."""

    data: str = field(
        default="", metadata={"help": "folder with train0..12 and test0..12, plain or gzipped"}
    )
    max_operators: int = switch(
        6,
        "train on sentences with at most this many operators",
        least=0,
        most=MAX_OPERATORS,
        note="the paper trains on at most 6",
    )


@register_task("logical_inference", dataclass=LogicalInferenceConfig)
class LogicalInferenceTask(ClassificationTask):
    """Classify the relation between two propositions, one of seven.

    The bucket of an example is its number of operators.
    """

    num_sentences = 2

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        check(cfg, LogicalInferenceConfig)
        self.state.add_factory("symbols", lambda: ["(", ")", "not", "and", "or", *VARIABLES])
        self.state.add_factory("classes", lambda: list(RELATIONS))

    def read_examples(self, split: str) -> Sequence[Example]:
        return read_split(Path(self.cfg.data), split, self.cfg.max_operators)

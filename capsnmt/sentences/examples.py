"""Labelled sentences, or pairs of them, from a text file to a batch."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, data_utils
from torch import Tensor

from capsnmt.errors import ConfigurationError


@dataclass(frozen=True)
class Example:
    """Sentences of space-separated tokens, their label, and where they stand.

    ``bucket`` is what accuracy is told apart by: a length, or a number of operators.
    """

    sentences: Tuple[str, ...]
    label: str
    bucket: int
    path: Path
    line: int

    def reject(self, problem: str) -> NoReturn:
        """Raise one line that names the file and the line."""
        raise ConfigurationError(f"{self.path}, line {self.line}: {problem}")


def existing(path: Path, missing: str) -> Path:
    """The file, or the same gzipped.

    Raises:
        ConfigurationError: neither is there; ``missing`` says what to do.
    """
    zipped = path.with_name(path.name + ".gz")
    for candidate in (path, zipped):
        if candidate.is_file():
            return candidate
    raise ConfigurationError(f"{path}: there is no such file, nor {zipped.name}: {missing}")


def read_fields(path: Path, fields: Sequence[str]) -> Iterator[Tuple[int, List[str]]]:
    """Yield number and fields of each line of a plain or gzipped table without header.

    Raises:
        ConfigurationError: the file cannot be read, or a line has other fields or an empty one.
    """
    opener: Any = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rb") as file:
            for number, raw in enumerate(file, 1):
                values = raw.decode("utf-8").rstrip("\r\n").split("\t")
                if len(values) != len(fields):
                    raise ConfigurationError(
                        f"{path}, line {number}: {len(values) - 1} tabs: a line is "
                        f"{' TAB '.join(fields)}"
                    )
                for name, value in zip(fields, values):
                    if not value.strip():
                        raise ConfigurationError(
                            f"{path}, line {number}: the {name} is empty: remove the line"
                        )
                yield number, values
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start}): convert the "
            f"file, e.g. iconv -f latin1 -t utf-8"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error}): fetch it again") from None


class ClassificationDataset(FairseqDataset):
    """Encoded examples, and their batches.

    A batch's ``src_tokens`` are ``[n B, L]``: the first sentences of all examples, then the second
    ones, padded on the left as fairseq pads a translation's source.

    Args:
        sentences: of each example, the token indices of its sentences.
        labels: of each example, the index of its class.
        buckets: of each example, its bucket.
        pad: index of the padding symbol.
        shuffle: give the examples in another order in every epoch.
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
        return {
            "id": index,
            "sentences": self.sentences[index],
            "label": self.labels[index],
            "bucket": self.buckets[index],
        }

    def __len__(self) -> int:
        return len(self.sentences)

    def num_tokens(self, index: int) -> int:
        """The tokens of an example in a batch, for ``--max-tokens``."""
        return int(self.sizes[index]) * len(self.sentences[index])

    def num_tokens_vec(self, indices: Any) -> Any:
        """``num_tokens`` of several examples."""
        return self.sizes[indices] * len(self.sentences[0])

    def size(self, index: int) -> int:
        """The longer sentence of an example, for the encoder's positions."""
        return int(self.sizes[index])

    def ordered_indices(self) -> Any:
        """Indices by length, so that a batch has little padding; ties by chance in training."""
        order = np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """One batch of the samples."""
        if not samples:
            return {}
        lines = [line for row in zip(*(s["sentences"] for s in samples)) for line in row]
        tokens = data_utils.collate_tokens(lines, self.pad, left_pad=True)
        lengths = torch.tensor([len(line) for line in lines])
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": torch.stack([sample["label"] for sample in samples]),
            "bucket": torch.stack([sample["bucket"] for sample in samples]),
        }

"""Labelled sentences or sentence pairs, from token indices to a batch."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import FairseqDataset, data_utils
from torch import Tensor


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
        return {
            "id": index,
            "sentences": self.sentences[index],
            "label": self.labels[index],
            "bucket": self.buckets[index],
        }

    def __len__(self) -> int:
        return len(self.sentences)

    def num_tokens(self, index: int) -> int:
        """Return the number of tokens of an example, for ``--max-tokens``."""
        return int(self.sizes[index]) * len(self.sentences[index])

    def size(self, index: int) -> int:
        """Return the length of the longest sentence of an example, for the encoder's positions."""
        return int(self.sizes[index])

    def ordered_indices(self) -> Any:
        """Return indices sorted by length, to reduce padding; ties are random in training."""
        order = np.random.permutation(len(self)) if self.shuffle else np.arange(len(self))
        return order[np.argsort(self.sizes[order], kind="stable")]

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Collate samples into one batch."""
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

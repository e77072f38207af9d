"""A trained system and the sentences on which it is analysed."""

from __future__ import annotations

import struct
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Iterator, List, Sequence

import numpy as np
from fairseq.utils import move_to_cuda

from capsnmt.analysis.forward_pass import Batch
from capsnmt.cli import ConfigurationError
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.translate.load import chosen_device


@dataclass(frozen=True)
class Options:
    """Settings of single analyses.

    Attributes:
        browser_sentences: how many sentences the browser of the page shows.
        ablation_sentences: on how many sentences heads and layers are ablated.
        ablation_translations: how many sentences are translated without each encoder layer.
    """

    browser_sentences: int = 10
    ablation_sentences: int = 200
    ablation_translations: int = 0


@dataclass(frozen=True)
class System:
    """A system under analysis.

    Attributes:
        name: its name on the page.
        model: the model, in evaluation mode.
        task: its translation task, with the subset loaded.
        dataset: the subset.
        numbers: the chosen sentences of each batch, by number in the subset.
        seed: the seed of every random choice.
        options: the settings of single analyses.
    """

    name: str
    model: CapsnmtTransformer
    task: Any
    dataset: Any
    numbers: Sequence[Sequence[int]]
    seed: int = 1
    options: Options = field(default_factory=Options)

    def batches(self) -> Iterator[Batch]:
        """Yield the chosen sentences in batches, on the model's device."""
        on_gpu = next(self.model.parameters()).is_cuda
        for numbers in self.numbers:
            sample = self._read(numbers)
            yield batch_of(move_to_cuda(sample) if on_gpu else sample, self.task)

    def _read(self, numbers: Sequence[int]) -> Any:
        """Return the collated sentences.

        Raises:
            ConfigurationError: they are damaged.
        """
        damaged = ConfigurationError(
            f"sentences {min(numbers)} to {max(numbers)} of the data are damaged: binarise it again"
        )
        try:
            sample = self.dataset.collater([self.dataset[number] for number in numbers])
        except (ValueError, IndexError, OSError):
            raise damaged from None
        for tokens, dictionary in (
            (sample["net_input"]["src_tokens"], self.task.source_dictionary),
            (sample["target"], self.task.target_dictionary),
        ):
            if tokens.min() < 0 or tokens.max() >= len(dictionary):
                raise damaged
        return sample

    def sample(self, sentences: int) -> System:
        """Return the system on some of its sentences, chosen at random, in batches as large."""
        lengths = longer_sides(self.dataset)
        chosen = sorted(number for numbers in self.numbers for number in numbers)
        drawn = np.random.RandomState(self.seed).permutation(chosen)[:sentences].tolist()
        largest = max(len(numbers) * max(lengths[n] for n in numbers) for numbers in self.numbers)
        return replace(self, numbers=in_batches(drawn, lengths, largest))

    def tokens(self, side: str, ids: Any) -> List[str]:
        """Return the subwords of one sentence, without padding.

        Args:
            side: ``source`` or ``target``.
            ids: their numbers in the dictionary, padding included.
        """
        dictionary = getattr(self.task, f"{side}_dictionary")
        return [dictionary[int(i)] for i in ids if i != dictionary.pad()]


def batch_of(sample: Any, task: Any) -> Batch:
    """Return a batch of fairseq with its masks."""
    inputs = sample["net_input"]
    return Batch(
        sample["id"].tolist(),
        sample,
        inputs["src_tokens"].ne(task.source_dictionary.pad()),
        inputs["prev_output_tokens"].ne(task.target_dictionary.pad()),
    )


def load_subset(task: Any, subset: str, data: Any) -> Any:
    """Return a subset of the data with its references.

    Raises:
        ConfigurationError: there is no such subset, it has no references, or it is empty.
    """
    found = True
    with _silent_destructors():
        try:
            task.load_dataset(subset)
        except (OSError, ValueError, LookupError, TypeError, AssertionError, struct.error):
            found = False
    if not found:
        raise ConfigurationError(
            f"--subset {subset}: {data} has no such binarised text in both languages, or it is "
            "damaged"
        )
    dataset = task.dataset(subset)
    if dataset.tgt is None or not len(dataset):
        raise ConfigurationError(f"--subset {subset}: {data} has no sentences with references")
    return dataset


@contextmanager
def _silent_destructors() -> Iterator[None]:
    """Do not print what fairseq's data set raises when it is deleted before it is complete."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def choose_sentences(
    dataset: Any, model: Any, sentences: int, seed: int, max_tokens: int
) -> List[List[int]]:
    """Choose sentences at random and put them in batches of similar length.

    Sentences that are longer than the model's positions are not chosen.

    Args:
        dataset: the subset.
        model: the model.
        sentences: how many; all, if the subset has fewer.
        seed: seed of the choice.
        max_tokens: tokens of a batch on the longer side, padding included.

    Returns:
        The numbers of the sentences of each batch.

    Raises:
        ConfigurationError: no sentence fits the model.
    """
    longest = min(limit for limit in model.max_positions())
    lengths = longer_sides(dataset)
    fitting = np.flatnonzero(lengths <= longest)
    if not len(fitting):
        raise ConfigurationError(f"no sentence has at most {longest} tokens, the model's positions")
    chosen = np.random.RandomState(seed).permutation(fitting)[:sentences]
    return in_batches(chosen.tolist(), lengths, max_tokens)


def longer_sides(dataset: Any) -> Any:
    """Return the tokens of the longer side of each sentence of a subset."""
    return np.maximum(dataset.src_sizes, dataset.tgt_sizes)


def in_batches(chosen: Sequence[int], lengths: Any, max_tokens: int) -> List[List[int]]:
    """Put sentences in batches of similar length.

    Args:
        chosen: their numbers.
        lengths: tokens of each sentence of the subset.
        max_tokens: tokens of a batch, padding included.
    """
    batches: List[List[int]] = []
    for number in sorted(chosen, key=lambda n: (lengths[n], n)):
        # sorted by length: the last sentence is the longest
        if batches and lengths[number] * (len(batches[-1]) + 1) <= max_tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


def to_device(model: Any, device: str) -> Any:
    """Move a model to ``cpu``, ``cuda`` or, with ``auto``, to a GPU if there is one.

    Raises:
        ConfigurationError: there is no GPU.
    """
    return model.to(chosen_device(device))

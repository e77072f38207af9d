"""A trained model and the sentences on which it is analysed."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
from fairseq.utils import move_to_cuda
from torch import Tensor
from tqdm import tqdm

from capsnmt.cli import ConfigurationError
from capsnmt.forms import marks_of
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.translate.load import chosen_device, load_model


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint, its name on the page, and the folder of its binarised data."""

    name: str
    path: Path
    data: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)  # of the run's generation


@dataclass(frozen=True)
class Scope:
    """What is analysed; each setting is a flag of ``capsnmt-analyse``."""

    subset: str
    sentences: int
    seed: int
    max_tokens: int
    browser_sentences: int
    ablation_sentences: int
    ablation_translations: int
    device: str


@dataclass(frozen=True)
class Batch:
    """Sentences of a batch."""

    numbers: Sequence[int]  # in the test set, from 0
    sample: Dict[str, Any]  # as fairseq's data set collates it
    source: Tensor  # [B, S], true at real tokens of the source, the end of sentence included
    target: Tensor  # [B, T], true at real tokens of the decoder's input


@dataclass(frozen=True)
class AnalysedModel:
    """A model under analysis, in evaluation mode, and the sentences chosen for it."""

    name: str
    model: CapsnmtTransformer
    task: Any
    dataset: Any
    numbers: Sequence[Any]  # in the subset, of the chosen sentences of each batch
    scope: Scope

    @property
    def chosen(self) -> List[int]:
        """The numbers of the chosen sentences, sorted."""
        return sorted(np.concatenate(self.numbers).tolist())

    @property
    def texts(self) -> Dict[int, Tuple[str, int]]:
        """The chosen sentences and references as words, and how many tokens, by their numbers."""
        sides = {"source": self.task.source_dictionary, "target": self.task.target_dictionary}
        known = [(side, words, marks_of(words.symbols)) for side, words in sides.items()]
        return {
            x: (
                "\t".join(words.string(self.dataset[x][side], by) for side, words, by in known),
                sum(len(self.dataset[x][side]) for side in sides),
            )
            for x in self.chosen
        }

    def batches(self, progress: str = "") -> Iterator[Batch]:
        """Yield the chosen sentences in batches, on the model's device, with a progress bar."""
        label = f"{self.name}, {progress}" if progress else self.name
        total = len(self.chosen)
        # None: no bar in a log, which is no terminal
        with tqdm(total=total, desc=label, unit=" sentences", mininterval=1, disable=None) as bar:
            for numbers in self.numbers:
                sample = self.dataset.collater([self.dataset[number] for number in numbers])
                if next(self.model.parameters()).is_cuda:
                    sample = move_to_cuda(sample)
                inputs = sample["net_input"]
                yield Batch(
                    sample["id"].tolist(),
                    sample,
                    inputs["src_tokens"].ne(self.task.source_dictionary.pad()),
                    inputs["prev_output_tokens"].ne(self.task.target_dictionary.pad()),
                )
                bar.update(len(numbers))

    def sample(self, sentences: int) -> "AnalysedModel":
        """Return the model with some of its sentences, chosen at random."""
        order = np.random.RandomState(self.scope.seed).permutation(len(self.dataset))
        drawn = order[np.isin(order, self.chosen)][:sentences]
        return replace(self, numbers=in_batches(self.dataset, drawn, self.scope.max_tokens))


def load(checkpoint: NamedCheckpoint, scope: Scope) -> AnalysedModel:
    """Load a checkpoint and choose its sentences.

    Sentences that are longer than the model's positions are not chosen, and others take their
    place: models with fewer positions read the same ones but for these.
    """
    device = chosen_device(scope.device)
    # **D**: the model runs in fp32, whatever its training used
    overrides = {**checkpoint.overrides, "autocast": "none"}
    model, _, task = load_model(checkpoint.path, checkpoint.data, overrides)
    try:
        task.load_dataset(scope.subset)
        dataset = task.dataset(scope.subset)
        if dataset.tgt is None:
            raise FileNotFoundError
    except FileNotFoundError:
        known = sorted({path.name.partition(".")[0] for path in checkpoint.data.glob("*.idx")})
        raise ConfigurationError(
            f"--subset is {scope.subset}, which {checkpoint.data} lacks or has without "
            f"references; choose from {', '.join(known) or 'other data, by --data'}"
        ) from None
    longest, lengths = min(model.max_positions()), lengths_of(dataset)
    order = np.random.RandomState(scope.seed).permutation(len(lengths))
    chosen = order[lengths[order] <= longest][: scope.sentences]
    if not len(chosen):
        raise ConfigurationError(
            f"{checkpoint.data} has no sentence of at most {longest} tokens, the positions of "
            f"{checkpoint.name}; give other data"
        )
    numbers = in_batches(dataset, chosen, scope.max_tokens)
    return AnalysedModel(checkpoint.name, model.to(device), task, dataset, numbers, scope)


def lengths_of(dataset: Any) -> Any:
    """Return the tokens of the longer side of each sentence of a data set."""
    return dataset.num_tokens_vec(np.arange(len(dataset)))


def in_batches(dataset: Any, chosen: Any, max_tokens: int) -> Sequence[Any]:
    """Put sentences in batches of similar length, of ``max_tokens`` tokens or the longest's."""
    lengths = dataset.num_tokens_vec(chosen)
    order = chosen[np.lexsort((chosen, lengths))]
    return dataset.batch_by_size(order, max_tokens=max(max_tokens, lengths.max()))

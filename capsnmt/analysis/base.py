"""What one forward pass gives, and the base class of the analyses that take it.

All tensors are detached, batch first, on the model's device.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Hashable, Iterator, List, Mapping, Sequence, Tuple, Union

from torch import Tensor, nn

from capsnmt.analysis.model import AnalysedModel, Batch
from capsnmt.analysis.plots import Figure, PointsByLayer

Cell = Union[str, int, float, None]


@dataclass(frozen=True)
class AttentionCall:
    """One attention on one batch."""

    place: str  # enc-self, enc-dec or dec-self
    layer: int  # from 1
    weights: Tensor  # A, the output of the softmax, [B, H, L, K], 0 at padded keys
    values: Tensor  # V, [B, H, K, d_h]
    heads: Tensor  # O, [B, H, L, d_h]
    queries: Tensor  # [B, L], true at real tokens
    keys: Tensor  # [B, K], true at real tokens
    offset: Tensor  # query minus key in positions of their sentence, [B, L, K]
    batch: Batch


@dataclass(frozen=True)
class RoutingCall:
    """One call of a routing operator on one batch: P routings of I inputs to N outputs each."""

    place: str  # an attention; encoder or decoder for routing over layers
    kind: str  # what is routed: heads, layers, or scores (vertical or horizontal)
    layer: int  # from 1; of a routing over layers, the number of layers
    coefficients: List[Tensor]  # C of each iteration, [B, P, I, N]
    routings: Tensor  # [B, P], false where a routing belongs to padding
    inputs: Tensor  # [B, P, I], false where an input takes no part
    outputs: Tensor  # [B, P, N], false where an output takes no part
    batch: Batch


@dataclass(frozen=True)
class AggregationCall:
    """One aggregation of a stack's layers on one batch."""

    side: str  # encoder or decoder
    module: nn.Module
    # its inputs, [B, L, d] each; of transparent attention, H^0..H^L; of a connection, y_0..y_l as
    # they are summed
    layers: List[Tensor]
    real: Tensor  # [B, L], true at real tokens


@dataclass(frozen=True)
class StackStates:
    """The states of both stacks on one batch."""

    batch: Batch
    encoder: List[Tensor]  # H^0..H^L of the encoder, before a final normalisation, [B, S, d] each
    decoder: List[Tensor]  # the same of the decoder, [B, T, d] each
    encoder_normalised: List[Tensor]  # the encoder's after a final normalisation
    encoder_output: Tensor  # what the decoder reads, [B, S, n d]
    logits: Tensor  # [B, T, V]


class StreamingMeans:
    """Ratios of two sums over all batches, by key and in the order of the first batch.

    The sums are kept on the CPU in fp64, so that their error does not grow with the corpus.
    """

    def __init__(self) -> None:
        self._sums: Dict[Hashable, Tuple[Tensor, Tensor]] = {}

    def add(self, key: Hashable, total: Tensor, count: Tensor) -> None:
        """Add the two sums of one batch, of broadcastable shapes."""
        total, count = (x.detach().double().cpu() for x in (total, count))
        if key in self._sums:
            old = self._sums[key]
            total, count = old[0] + total, old[1] + count
        self._sums[key] = total, count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sums)

    def count(self, key: Hashable) -> Tensor:
        """Return the sum of the counts."""
        return self._sums[key][1]

    def __getitem__(self, key: Hashable) -> Tensor:
        """Return total / count; NaN where nothing was counted."""
        total, count = self._sums[key]
        return total / count


class NotApplicableError(Exception):
    """The reason why a model has nothing that an analysis could show."""


class Analysis:
    """One analysis of one model.

    The model runs once over the sentences, without dropout and with the decoder teacher-forced on
    the references. During the run it calls the methods ``on_...``. An analysis keeps sums, not
    tensors, so that its memory does not depend on the number of sentences, and does not keep the
    model. For a model that has nothing to analyse it raises ``NotApplicableError``.
    """

    name: ClassVar[str]  # of the CSV file, of --only and in the template of the page
    columns: ClassVar[Sequence[str]]  # of the CSV file, after ``system``
    plots: ClassVar[Sequence[PointsByLayer]] = ()

    def __init__(self, model: AnalysedModel) -> None:
        self.sentences = len(model.chosen)  # that it is about
        self.means: Dict[str, StreamingMeans] = defaultdict(StreamingMeans)  # by what is measured

    def on_attention(self, call: AttentionCall) -> None:
        """Take one attention of one layer on one batch."""

    def on_routing(self, call: RoutingCall) -> None:
        """Take one call of a routing operator on one batch."""

    def on_aggregation(self, call: AggregationCall) -> None:
        """Take one aggregation of a stack's layers on one batch."""

    def on_states(self, states: StackStates) -> None:
        """Take the states of both stacks on one batch, after all other calls on the batch."""

    def finish(self, model: AnalysedModel) -> None:
        """Complete the analysis after the last batch."""

    def rows(self) -> List[Sequence[Cell]]:
        """Return the rows of the CSV file, without the name of the model."""
        raise NotImplementedError

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        """Return further figures of the finished analyses, by model."""
        return []

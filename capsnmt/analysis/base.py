"""The base class of all analyses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, List, Mapping, Sequence, Union

from capsnmt.analysis.forward_pass import AggregationCall, AttentionCall, RoutingCall, StackStates
from capsnmt.analysis.plots import Figure, PointsByLayer

if TYPE_CHECKING:
    from capsnmt.analysis.model import AnalysedModel

Cell = Union[str, int, float, None]


class NotApplicableError(Exception):
    """The reason why a model has nothing that an analysis could show."""


class Analysis:
    """One analysis of one model.

    The model runs once over the sentences, without dropout and with the decoder teacher-forced on
    the references. During the run it calls the methods ``on_...``. An analysis keeps sums, not
    tensors, so that its memory does not depend on the number of sentences, and does not keep the
    model. For a model that has nothing to analyse it raises ``NotApplicableError``.
    """

    name: ClassVar[str]  # of the CSV file and of --only
    title: ClassVar[str]
    explanation: ClassVar[str]  # what the numbers are, in plain words
    columns: ClassVar[Sequence[str]]  # of the CSV file, after ``system``
    plots: ClassVar[Sequence[PointsByLayer]] = ()

    def __init__(self, model: AnalysedModel) -> None:
        self.sentences = len(model.chosen)  # that it is about

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

"""The disagreement terms of a trained model (Li et al. 2021, eq 5 to 7), and their rivals."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from capsnmt.analysis.base import Analysis, AttentionCall, Cell
from capsnmt.analysis.means import StreamingMeans
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord


class Disagreement(Analysis):
    """The terms of the training criterion, measured on the subset, per attention and layer."""

    name = "disagreement"
    columns = ("attention", "layer", *TERMS)

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.terms: StreamingMeans[Tuple[str, int, str]] = StreamingMeans()

    def on_attention(self, call: AttentionCall) -> None:
        record = DisagreementRecord(TERMS, [call.place], call.queries, call.queries)
        record.add(call.place, call.values, call.weights, call.heads)
        for (_, term), (measured,) in record.values.items():
            real = call.keys if term == "subspace" else call.queries
            self.terms.add((call.place, call.layer, term), (measured * real).sum(), real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        layers = dict.fromkeys((place, layer) for place, layer, _ in self.terms)
        return [
            (*key, *(self.terms[(*key, term)].item() for term in TERMS))
            for key in sorted(layers, key=lambda key: ATTENTIONS.index(key[0]))
        ]

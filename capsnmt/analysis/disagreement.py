"""The three disagreement terms of a trained model (Li et al. 2021, section 4)."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from capsnmt.analysis.base import Analysis, Cell
from capsnmt.analysis.forward_pass import Attended
from capsnmt.analysis.means import Sums
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord


class Disagreement(Analysis):
    """The terms of the training criterion, measured on the subset, per attention and layer."""

    name = "disagreement"
    title = "Disagreement of heads"
    explanation = (
        "How alike the heads of an attention are (Li et al. 2021, equations 5 to 7, with the sign "
        "of a loss): the mean cosine of their values (subspace), the mean overlap of their weights "
        "(position) and the mean cosine of their outputs (output). Lower is more diverse; 1 is all "
        "heads alike."
    )
    columns = ("attention", "layer", *TERMS)

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.terms: Sums[Tuple[str, int, str]] = Sums()

    def attended(self, call: Attended) -> None:
        record = DisagreementRecord(TERMS, [call.attention])
        record.add(call.attention, call.values, call.weights, call.heads)
        for (_, term), (measured,) in record.values.items():
            real = call.keys if term == "subspace" else call.queries
            key = call.attention, call.layer, term
            self.terms.add(key, (measured * real).sum(), real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        layers = {(attention, layer) for attention, layer, _ in self.terms}
        return [
            (*key, *(self.terms.ratio((*key, term)).item() for term in TERMS))
            for key in sorted(layers, key=lambda key: (ATTENTIONS.index(key[0]), key[1]))
        ]

"""How much of each layer an aggregation of layers uses."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, Picture
from capsnmt.analysis.drawing import Points, points_by_layer
from capsnmt.analysis.observation import Aggregated, places
from capsnmt.analysis.sums import Sums
from capsnmt.modules.layer_aggregation import SumAggregation, TransparentMixture

SUMS = (SumAggregation, TransparentMixture)


class LayerWeights(Analysis):
    r"""Mean norm of each layer's contribution to the aggregate, and its share.

    An aggregate that is a sum over layers has the contributions :math:`W_l H^l` (linear),
    :math:`g_l \odot H^l` (dynamic), :math:`\alpha_l H^l` (attention over depth) or
    :math:`\mathrm{softmax}(W_{:,j})_l H^l` (transparent, for decoder layer j).

    ``norm`` is the mean over all real tokens; ``share`` is its part of the sum over the layers.
    """

    name = "layer_weights"
    title = "Use of the layers"
    explanation = (
        "How much each layer contributes to an aggregation of layers: the mean norm of its "
        "contribution, and its share of the norms of all layers. Transparent attention mixes the "
        "layers once for each decoder layer, and its layer 0 is the embeddings. Contributions may "
        "cancel each other: a large one is not always an important one."
    )
    columns = ("stack", "decoder_layer", "layer", "norm", "share")

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        if not any(isinstance(module, SUMS) for _, _, module in places(system.model)):
            raise NotApplicableError(
                "it does not add up layers (--layer-aggregation linear, dynamic, attention or "
                "transparent would)"
            )
        self.norms: Sums[str] = Sums()

    def aggregated(self, call: Aggregated) -> None:
        if isinstance(call.module, SUMS):
            parts = call.module.contributions([layer[call.real] for layer in call.layers])
            norms = parts.double().norm(dim=-1)
            self.norms.add(call.side, norms.sum(0), call.real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        rows: List[Sequence[Cell]] = []
        for stack in self.norms:
            norms = self.norms.ratio(stack)
            mixtures = enumerate(norms, 1) if norms.dim() == 2 else [(None, norms)]
            for decoder_layer, of_layers in mixtures:
                total = of_layers.sum()
                rows += [
                    (stack, decoder_layer, layer, norm.item(), (norm / total).item())
                    for layer, norm in enumerate(of_layers, 1 if decoder_layer is None else 0)
                ]
        return rows

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        panels: Points = {}
        for name, analysis in systems.items():
            for stack, _, layer, _, share in analysis.rows():
                panels.setdefault(stack, {}).setdefault(name, []).append((layer, share))
        return [
            Picture(
                "layer-weights",
                "Share of each layer in the aggregate of a stack's layers.",
                "Share of each layer in the sum of the contributions' norms. Of transparent "
                "attention: one point per decoder layer; a line joins the means.",
                points_by_layer(panels, "share of the norms"),
            )
        ]

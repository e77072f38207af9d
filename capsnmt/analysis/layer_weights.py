"""How much of each layer an aggregation of layers uses."""

from __future__ import annotations

from typing import Any, List, Sequence

from capsnmt.analysis.base import AggregationCall, Analysis, Cell, NotApplicableError
from capsnmt.analysis.hooks import places
from capsnmt.analysis.plots import PointsByLayer
from capsnmt.modules.layer_aggregation import (
    AttentionResiduals,
    LayerConnection,
    SumAggregation,
    TransparentMixture,
)

SUMS = (SumAggregation, LayerConnection, TransparentMixture)


class LayerWeights(Analysis):
    r"""Mean norm of each layer's contribution to the aggregate, and its share.

    An aggregate that is a sum over layers has the contributions :math:`W_l H^l` (linear),
    :math:`g_l \odot H^l` (dynamic), :math:`\alpha_l H^l` (attention over depth) or
    :math:`\mathrm{softmax}(W_{:,j})_l H^l` (transparent, for decoder layer j). In a connected stack
    (dlcl and dense) every layer and the output read a sum over all states below, and
    :math:`w_{l,k} y_k` are the contributions; in a pre-norm DLCL, y_k is normalised. Of attention
    residuals they are :math:`p_{l,i} v_i`.

    ``reader`` is the layer that reads the sum: a decoder layer (transparent) or a layer of the same
    stack (dlcl, dense). It is empty where the sum is the output of the stack. Attention residuals
    have sublayers as readers, and sublayers or blocks as layers.

    ``norm`` is the mean over all real tokens; ``share`` is its part of the sum over the layers.
    ``weight`` is the mean of :math:`p_{l,i}` (attention residuals only).
    """

    name = "layer_weights"
    columns = ("stack", "reader", "layer", "norm", "share", "weight")
    plots = (
        PointsByLayer(
            *("layer-weights", "share", "share of the norms", "stack"),
            "Share of each layer in the sum of the contributions' norms. Of transparent attention "
            "and connected layers: one point per reader; a line joins the means.",
        ),
    )

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not any(isinstance(module, SUMS) for _, _, module in places(model.model)):
            raise NotApplicableError(
                "no layers are added up, as by --layer-aggregation linear, dynamic, attention, "
                "dlcl, dense, attention-residuals or transparent"
            )

    def on_aggregation(self, call: AggregationCall) -> None:
        if isinstance(call.module, SUMS):
            layers = [layer[call.real] for layer in call.layers]
            norms = call.module.contributions(layers).double().norm(dim=-1)
            reader = None  # what reads the output of the stack
            if isinstance(call.module, LayerConnection):
                reader = len(layers) if len(layers) < call.module.num_states else None
            lowest = 1 if isinstance(call.module, SumAggregation) else 0
            key = call.side, reader, lowest  # the layers are those from the lowest on
            self.means["norm"].add(key, norms.sum(0), call.real.sum())
            if isinstance(call.module, AttentionResiduals):
                weights = call.module.weights(layers)
                self.means["weight"].add(key, weights.double().sum(0), call.real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        rows: List[Sequence[Cell]] = []
        for key in self.means["norm"]:
            stack, reader, lowest = key
            norms = self.means["norm"][key]
            weights: Sequence[Cell] = [None] * norms.size(-1)
            if key in self.means["weight"]:
                weights = self.means["weight"][key].tolist()
            mixtures = enumerate(norms, 1) if norms.dim() == 2 else [(reader, norms)]
            for read_by, of_layers in mixtures:
                total = of_layers.sum()
                rows += [
                    (stack, read_by, layer, norm.item(), (norm / total).item(), weight)
                    for layer, (norm, weight) in enumerate(zip(of_layers, weights), lowest)
                ]
        return rows

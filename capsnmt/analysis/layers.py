"""Layers of the stacks: how much of each is used, and how alike their states are."""

from functools import partial
from itertools import combinations_with_replacement
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, StackStates, places
from capsnmt.analysis.plots import Figure, PointsByLayer, matrices
from capsnmt.modules.layer_aggregation import AttentionResiduals, LayerAggregation, LayerConnection

STACKS = ("encoder", "decoder")
ROUNDING = 1e-12  # of the second moments: a smaller covariance is the error of its difference


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
            "and connected layers: one point per reader; a line joins the means. Of attention "
            "residuals, layers are sublayers or blocks of them.",
        ),
    )

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not any(hasattr(module, "contributions") for _, _, module in places(model.model)):
            raise NotApplicableError(
                "no layers are added up, as by --layer-aggregation linear, dynamic, attention, "
                "dlcl, dense, attention-residuals or transparent"
            )

    def on_aggregation(
        self, side: str, module: nn.Module, layers: List[Tensor], real: Tensor
    ) -> None:
        if hasattr(module, "contributions"):
            layers = [layer[real] for layer in layers]
            norms = module.contributions(layers).double().norm(dim=-1)
            reader = None  # what reads the output of the stack
            if isinstance(module, LayerConnection) and len(layers) < module.num_states:
                reader = len(layers)
            lowest = 1 if isinstance(module, LayerAggregation) else 0
            key = side, reader, lowest  # the layers are those from the lowest on
            self.means["norm"].add(key, norms.sum(0), real.sum())
            if isinstance(module, AttentionResiduals):
                weights = module.weights(layers)
                self.means["weight"].add(key, weights.double().sum(0), real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        rows: List[Sequence[Cell]] = []
        for key in self.means["norm"]:
            stack, reader, lowest = key
            norms, of_key = self.means["norm"][key], self.means["weight"]
            weights = of_key[key].tolist() if key in of_key else [None] * norms.size(-1)
            mixtures = enumerate(norms, 1) if norms.dim() == 2 else [(reader, norms)]
            for read_by, of_layers in mixtures:
                total = of_layers.sum()
                rows += [
                    (stack, read_by, layer, norm.item(), (norm / total).item(), weight)
                    for layer, (norm, weight) in enumerate(zip(of_layers, weights), lowest)
                ]
        return rows


class Similarity(Analysis):
    r"""Linear centred kernel alignment of every two layers of a stack (Kornblith et al. 2019).

    .. math::
        \mathrm{CKA}(X, Y) = \frac{|\Sigma_{XY}|_F^2}{|\Sigma_{XX}|_F |\Sigma_{YY}|_F}, \qquad
        \Sigma_{XY} = \frac{1}{n} \sum_i (x_i - \bar x)(y_i - \bar y)^\top

    over all real tokens. It is 1 for layers that differ by a rotation, a shift and a scale only.
    The sums are d x d matrices in fp64, one for each pair of layers, so that the memory does not
    grow with the corpus. The states are those before a final normalisation; layer 0 is the
    embeddings. NaN where a layer returns the same for every token.

    **D**: the plain estimate, which is too high where the tokens are few compared with d.
    """

    name = "similarity"
    columns = ("stack", "layer_a", "layer_b", "cka")

    def on_states(self, states: StackStates) -> None:
        for stack, layers, real in (
            ("encoder", states.encoder, states.batch.source),
            ("decoder", states.decoder, states.batch.target),
        ):
            tokens = [state[real].double() for state in layers]
            for layer, x in enumerate(tokens):
                self.means[stack].add(layer, x.sum(0), real.sum())
            for a, b in combinations_with_replacement(range(len(tokens)), 2):
                self.means[f"{stack}²"].add((a, b), tokens[a].t() @ tokens[b], real.sum())

    def finish(self, model: Any) -> None:
        """Replace the matrices by the similarities, ``[L + 1, L + 1]`` for each stack."""
        self.cka: Dict[str, Tensor] = {stack: self._cka(stack) for stack in STACKS}
        self.means.clear()

    def _cka(self, stack: str) -> Tensor:
        first, second = self.means[stack], self.means[f"{stack}²"]
        layers = len([*first])
        size = torch.zeros(layers, layers, dtype=torch.float64)
        for a, b in second:
            norm = (second[a, b] - torch.outer(first[a], first[b])).norm()
            constant = a == b and norm <= ROUNDING * second[a, b].norm()
            size[a, b] = size[b, a] = torch.nan if constant else norm
        own = size.diagonal()
        return size.square() / (own[:, None] * own[None, :])

    def rows(self) -> List[Sequence[Cell]]:
        return [
            (stack, a, b, value)
            for stack, cka in self.cka.items()
            for a, row in enumerate(cka.tolist())
            for b, value in enumerate(row)
        ]

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        return [
            Figure(
                f"similarity-{stack}",
                f"Linear CKA of every two layers of the {stack}. Layer 0 is the embeddings.",
                partial(
                    matrices,
                    {name: analysis.cka[stack] for name, analysis in models.items()},
                    ("linear CKA", "layer", "layer"),
                    first=0,
                ),
            )
            for stack in STACKS
        ]


class Anisotropy(Analysis):
    r"""Mean cosine of the states of two different tokens, per layer (Ethayarajh 2019, section 3).

    .. math::
        \frac{1}{n (n - 1)} \sum_{i \neq j} \cos(x_i, x_j)
        = \frac{|\sum_i u_i|^2 - \sum_i |u_i|^2}{n (n - 1)}, \qquad u_i = x_i / |x_i|

    exactly, over all pairs of the n real tokens, in one pass.

    ``encoder`` and ``decoder`` are the states of the stacks before a final normalisation, layer 0
    the embeddings. ``encoder-output`` is what the decoder reads; its layers are the sources of
    multi-layer attention, or the mixtures of transparent attention, from 1.
    """

    name = "anisotropy"
    columns = ("stack", "layer", "cosine")
    plots = (
        PointsByLayer(
            *("anisotropy", "cosine", "mean cosine of\ntwo tokens' states", "stack"),
            "Mean cosine of the states of two tokens. Layer 0 is the embeddings; what the decoder "
            "reads is numbered by source, from 1.",
        ),
    )

    def on_states(self, states: StackStates) -> None:
        width = states.encoder[-1].size(-1)
        source, target = states.batch.source, states.batch.target
        for stack, first, layers, real in (
            ("encoder", 0, states.encoder, source),
            ("encoder-output", 1, states.encoder_output.split(width, dim=-1), source),
            ("decoder", 0, states.decoder, target),
        ):
            for layer, state in enumerate(layers, first):
                unit = F.normalize(state[real].double(), dim=-1)
                self.means["unit"].add((stack, layer), unit.sum(0), real.sum())
                self.means["squares"].add((stack, layer), unit.square().sum(), real.sum())

    def cosine(self, key: Tuple[str, int]) -> float:
        """Return the mean cosine of a stack's layer; NaN for fewer than two tokens."""
        unit, squares = self.means["unit"], self.means["squares"]
        tokens = unit.count(key)
        of_pairs = tokens * unit[key].square().sum() - squares[key]
        return (of_pairs / (tokens - 1)).item()

    def rows(self) -> List[Sequence[Cell]]:
        return [(*key, self.cosine(key)) for key in self.means["unit"]]

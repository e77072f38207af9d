"""States of the stacks: how alike those of two layers are, and those of two tokens."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from capsnmt.analysis.base import Analysis, Cell, StackStates
from capsnmt.analysis.plots import Figure, Matrices, PointsByLayer

STACKS = ("encoder", "decoder")
ROUNDING = 1e-12  # of the second moments: a smaller covariance is the error of its difference


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
            Matrices(
                f"similarity-{stack}",
                f"Linear CKA of every two layers of the {stack}. Layer 0 is the embeddings.",
                {name: analysis.cka[stack] for name, analysis in models.items()},
                *("linear CKA", "layer", "layer"),
                first=0,
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
            "Mean cosine of the states of two tokens. Layer 0 is the embeddings.",
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

"""Anisotropy: how alike the states of different tokens are (Ethayarajh 2019, section 3)."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import torch.nn.functional as F

from capsnmt.analysis.base import Analysis, Cell, StackStates
from capsnmt.analysis.means import StreamingMeans
from capsnmt.analysis.plots import PointsByLayer


class Anisotropy(Analysis):
    r"""Mean cosine of the states of two different tokens, per layer.

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

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.unit: StreamingMeans[Tuple[str, int]] = StreamingMeans()
        self.squares: StreamingMeans[Tuple[str, int]] = StreamingMeans()

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
                self.unit.add((stack, layer), unit.sum(0), real.sum())
                self.squares.add((stack, layer), unit.square().sum(), real.sum())

    def cosine(self, key: Tuple[str, int]) -> float:
        """Return the mean cosine of a stack's layer; NaN for fewer than two tokens."""
        tokens = self.unit.count(key)
        of_pairs = tokens * self.unit[key].square().sum() - self.squares[key]
        return (of_pairs / (tokens - 1)).item()

    def rows(self) -> List[Sequence[Cell]]:
        return [(*key, self.cosine(key)) for key in self.unit]

"""Anisotropy: how alike the states of different tokens are (Ethayarajh 2019, section 3)."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

import torch.nn.functional as F

from capsnmt.analysis.base import Analysis, Cell, Picture
from capsnmt.analysis.forward_pass import Stacks
from capsnmt.analysis.means import Sums
from capsnmt.analysis.plots import Points, points_by_layer

NAMES = {
    "encoder": "states of the encoder",
    "encoder-output": "what the decoder reads",
    "decoder": "states of the decoder",
}
STACKS = tuple(NAMES)


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
    title = "Anisotropy"
    explanation = (
        "The mean cosine of the states of two random tokens, by layer (Ethayarajh 2019). Near 0 "
        "the states point in all directions; near 1 they are all alike, as after heads that return "
        "the same for every token. Layer 0 is the embeddings."
    )
    columns = ("stack", "layer", "cosine")

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.unit: Sums[Tuple[str, int]] = Sums()
        self.squares: Sums[Tuple[str, int]] = Sums()

    def passed(self, stacks: Stacks) -> None:
        width = stacks.encoder[-1].size(-1)
        source, target = stacks.batch.source, stacks.batch.target
        for stack, first, states, real in (
            ("encoder", 0, stacks.encoder, source),
            ("encoder-output", 1, stacks.encoder_output.split(width, dim=-1), source),
            ("decoder", 0, stacks.decoder, target),
        ):
            for layer, state in enumerate(states, first):
                unit = F.normalize(state[real].double(), dim=-1)
                self.unit.add((stack, layer), unit.sum(0), real.sum())
                self.squares.add((stack, layer), unit.square().sum(), real.sum())

    def cosine(self, key: Tuple[str, int]) -> float:
        """Return the mean cosine of a stack's layer; NaN for fewer than two tokens."""
        tokens = self.unit.count(key)
        of_pairs = tokens * self.unit.ratio(key).square().sum() - self.squares.ratio(key)
        return (of_pairs / (tokens - 1)).item()

    def rows(self) -> List[Sequence[Cell]]:
        return [
            (*key, self.cosine(key))
            for key in sorted(self.unit, key=lambda key: (STACKS.index(key[0]), key[1]))
        ]

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        panels: Points = {}
        for name, analysis in systems.items():
            for stack, layer, cosine in analysis.rows():
                panels.setdefault(NAMES[stack], {}).setdefault(name, []).append((layer, cosine))
        return [
            Picture(
                "anisotropy",
                "Mean cosine of two tokens' states by layer, for each stack and system.",
                "Mean cosine of the states of two tokens, by layer.",
                points_by_layer(panels, "mean cosine"),
            )
        ]

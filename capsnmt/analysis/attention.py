"""Attention distance and entropy of every head (Ampomah et al. 2020, eq 13 to 16)."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.analysis.base import Analysis, Cell, Picture
from capsnmt.analysis.forward_pass import Attended
from capsnmt.analysis.means import Sums
from capsnmt.analysis.plots import NAMES, Points, points_by_layer
from capsnmt.models.config import ATTENTIONS


def positions(real: Tensor) -> Tensor:
    """Return the position of each real token among the real tokens, from 0, ``[B, L]``."""
    return real.cumsum(1) - 1


def entropy(weights: Tensor) -> Tensor:
    r"""Return the entropy :math:`-\sum_j w_j \log w_j` in nats over the last dimension."""
    return -torch.xlogy(weights, weights).sum(-1)


class AttentionStatistics(Analysis):
    r"""Mean attention distance and entropy, per head.

    .. math::
        \frac{\sum_i \sum_j w_{ij} |i - j|}{\sum_i \sum_j w_{ij}}, \qquad
        -\frac{1}{n} \sum_i \sum_j w_{ij} \log w_{ij}

    **D**: equation 13 is printed for j <= i with i - j, which suits a left-to-right model. An
    encoder looks both ways: ``distance`` takes \|i - j\| over all real keys, and
    ``distance_one_sided`` is the printed form.

    **D**: the distance is one ratio of sums over all tokens of the subset, and the entropy a mean
    over all queries; neither is a mean over sentences.
    """

    name = "attention"
    title = "Attention distance and entropy"
    explanation = (
        "How far from its own position a head looks, in tokens, and how widely it spreads its "
        "attention, in nats (Ampomah et al. 2020, equations 13 to 16). A head that looks at one "
        "token has entropy 0; a head that looks at n tokens equally has log n."
    )
    columns = ("attention", "layer", "head", "distance", "distance_one_sided", "entropy")

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.distance: Sums[Tuple[str, int]] = Sums()
        self.one_sided: Sums[Tuple[str, int]] = Sums()
        self.entropy: Sums[Tuple[str, int]] = Sums()

    def attended(self, call: Attended) -> None:
        real = call.queries[:, None, :, None] & call.keys[:, None, None, :]
        weights = call.weights * real
        queries, keys = positions(call.queries), positions(call.keys)
        if call.keys.size(1) > call.queries.size(1) and call.attention == "dec-self":
            keys = torch.cat([positions(call.batch.source), positions(call.batch.target)], dim=1)
        offset = (queries[:, None, :, None] - keys[:, None, None, :]).to(weights.dtype)
        key, dims = (call.attention, call.layer), (0, 2, 3)
        self.distance.add(key, (weights * offset.abs()).sum(dims), weights.sum(dims))
        before = weights * (offset >= 0)
        self.one_sided.add(key, (before * offset).sum(dims), before.sum(dims))
        self.entropy.add(key, entropy(weights).sum((0, 2)), call.queries.sum())

    def rows(self) -> List[Sequence[Cell]]:
        return [
            (attention, layer, head, *values)
            for attention, layer in sorted(
                self.distance, key=lambda key: (ATTENTIONS.index(key[0]), key[1])
            )
            for head, values in enumerate(
                zip(*(sums.ratios((attention, layer)) for sums in self.sums)), 1
            )
        ]

    @property
    def sums(self) -> Tuple[Sums[Tuple[str, int]], ...]:
        """The sums in the order of the columns."""
        return self.distance, self.one_sided, self.entropy

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        found = []
        for column, label in (("distance", "distance, tokens"), ("entropy", "entropy, nats")):
            place = cls.columns.index(column)
            panels: Points = {}
            for name, analysis in systems.items():
                for row in analysis.rows():
                    points = panels.setdefault(NAMES[row[0]], {}).setdefault(name, [])
                    points.append((row[1], row[place]))
            found.append(
                Picture(
                    column,
                    f"Attention {column} of each head by layer, for each attention and system.",
                    f"Attention {column}: one point per head; a line joins the means over the "
                    "heads of a layer.",
                    points_by_layer(panels, label),
                )
            )
        return found

"""Attentions: distance and entropy of every head, and disagreement of the heads of a layer."""

from __future__ import annotations

from typing import List, Sequence

import torch

from capsnmt.analysis.base import Analysis, AttentionCall, Cell
from capsnmt.analysis.plots import PointsByLayer
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord

SPREAD = "One point per head; a line joins the means over the heads of a layer."


class AttentionStatistics(Analysis):
    r"""Mean attention distance and entropy, per head (Ampomah et al. 2020, eq 13 to 16).

    .. math::
        \frac{\sum_i \sum_j w_{ij} |i - j|}{\sum_i \sum_j w_{ij}}, \qquad
        -\frac{1}{n} \sum_i \sum_j w_{ij} \log w_{ij}

    **D**: equation 13 sums over j <= i with i - j, which suits a left-to-right model. An encoder
    looks both ways: ``distance`` takes \|i - j\| over all real keys, and ``distance_one_sided`` is
    the equation as it is published.

    **D**: the distance is one ratio of sums over all tokens of the subset, and the entropy a mean
    over all queries; neither is a mean over sentences.
    """

    name = "attention"
    columns = ("attention", "layer", "head", "distance", "distance_one_sided", "entropy")
    plots = (
        PointsByLayer(
            *("distance", "distance", "distance, tokens", "attention"),
            f"Mean distance between a query and the keys it attends to. {SPREAD}",
        ),
        PointsByLayer(
            *("entropy", "entropy", "entropy, nats", "attention"),
            f"Mean entropy of the attention weights of a query. {SPREAD}",
        ),
    )

    def on_attention(self, call: AttentionCall) -> None:
        w = call.weights * (call.queries[:, None, :, None] & call.keys[:, None, None, :])
        offset = call.offset.unsqueeze(1).to(w.dtype)
        key, dims = (call.place, call.layer), (0, 2, 3)
        self.means["distance"].add(key, (w * offset.abs()).sum(dims), w.sum(dims))
        before = w * (offset >= 0)
        near = (before * offset).sum(dims)
        self.means["distance_one_sided"].add(key, near, before.sum(dims))
        entropies = -torch.xlogy(w, w).sum(-1)
        self.means["entropy"].add(key, entropies.sum((0, 2)), call.queries.sum())

    def rows(self) -> List[Sequence[Cell]]:
        measured = [self.means[column] for column in self.columns[3:]]
        return [
            (*key, head, *values)
            for key in sorted(measured[0], key=lambda key: ATTENTIONS.index(key[0]))
            for head, values in enumerate(zip(*(means[key].tolist() for means in measured)), 1)
        ]


class Disagreement(Analysis):
    """The terms of the criterion, per attention and layer (Li et al. 2021, eq 5 to 7)."""

    name = "disagreement"
    columns = ("attention", "layer", *TERMS)

    def on_attention(self, call: AttentionCall) -> None:
        record = DisagreementRecord(TERMS, [call.place], call.queries, call.queries)
        record.add(call.place, call.values, call.weights, call.heads)
        for (_, term), (measured,) in record.values.items():
            real = call.keys if term == "subspace" else call.queries
            self.means[term].add((call.place, call.layer), (measured * real).sum(), real.sum())

    def rows(self) -> List[Sequence[Cell]]:
        terms = [self.means[term] for term in TERMS]
        return [
            (*key, *(means[key].item() for means in terms))
            for key in sorted(terms[0], key=lambda key: ATTENTIONS.index(key[0]))
        ]

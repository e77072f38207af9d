"""Heads of attentions: how far they look, how alike they are, and their outputs in the plane."""

from functools import partial
from typing import Any, List, Mapping, Sequence

import numpy as np
import torch

from capsnmt.analysis.base import Analysis, AttentionCall, Cell, NotApplicableError, positions
from capsnmt.analysis.plots import Figure, PointsByLayer, scatter
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS, DisagreementRecord

SPREAD = "One point per head; a line joins the means over the heads of a layer."
# of the t-SNE
TOKENS = 200
PERPLEXITY = 30
PROJECTED = "enc-self"


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


class HeadTSNE(Analysis):
    r"""Outputs :math:`O_h` of the heads of the top encoder layer, for a sample of tokens.

    ``x`` and ``y`` are the point of each head and token in scikit-learn's t-SNE. It can show groups
    where there are none: ``silhouette`` measures, on the outputs themselves, how much nearer a
    point is to the points of its own head than to the points of the nearest other head, from -1 to
    1 (Rousseeuw 1987), in Euclidean distances. Its mean is the score of the model.

    The sample has up to 200 real tokens of all sentences, each with the same chance; models that
    read the same sentences in the same batches have the same sample. The seed draws it, and is the
    seed of t-SNE.
    """

    name = "head_tsne"
    columns = ("attention", "layer", "head", "sentence", "position", "x", "y", "silhouette")

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        layers = model.model.encoder.layers
        self.layer = len(layers)
        if not layers or layers[-1].self_attn.num_heads < 2:
            raise NotApplicableError("the top encoder layer has one head, or there is none")
        self.random = np.random.RandomState(model.scope.seed)
        self.keys = torch.empty(0, dtype=torch.float64)
        self.sample = torch.empty(0, 2, dtype=torch.long)  # sentence and position
        self.heads = torch.empty(0)  # [tokens, H, d_h]

    def on_attention(self, call: AttentionCall) -> None:
        if (call.place, call.layer) != (PROJECTED, self.layer):
            return
        # the tokens with the smallest random keys are a sample of all tokens so far
        drawn = torch.from_numpy(self.random.random_sample(int(call.queries.sum())))
        at = positions(call.queries) + 1
        sentences = torch.tensor(list(call.batch.numbers), device=at.device)[:, None]
        sample = torch.stack([sentences.expand_as(at), at], dim=-1)[call.queries].cpu()
        heads = call.heads.transpose(1, 2)[call.queries].double().cpu()
        keys = torch.cat([self.keys, drawn])
        kept = keys.argsort()[:TOKENS]
        self.keys = keys[kept]
        self.sample = torch.cat([self.sample, sample])[kept]
        self.heads = torch.cat([self.heads.to(heads), heads])[kept]

    def finish(self, model: Any) -> None:
        """Project the sample and measure its groups; points are ordered by token, then head."""
        from sklearn.manifold import TSNE
        from sklearn.metrics import silhouette_samples

        tokens, heads = self.heads.shape[:2]
        points = self.heads.flatten(0, 1).numpy()
        self.head = np.tile(np.arange(heads), tokens)
        self.map = np.zeros((len(points), 2))
        if np.ptp(points, axis=0).any():  # otherwise all are one point: no direction to start from
            tsne = TSNE(
                perplexity=min(PERPLEXITY, (len(points) - 1) / 3),
                init="pca" if points.shape[1] > 1 else "random",
                learning_rate="auto",
                random_state=model.scope.seed,
            )
            self.map = tsne.fit_transform(points)
        self.silhouette = np.full(len(points), np.nan)
        if tokens > 1:
            self.silhouette = silhouette_samples(points, self.head)

    def rows(self) -> List[Sequence[Cell]]:
        tokens = self.sample.repeat_interleave(self.heads.size(1), 0).tolist()
        return [
            (PROJECTED, self.layer, int(head) + 1, *token, *map(float, (*point, silhouette)))
            for head, token, point, silhouette in zip(self.head, tokens, self.map, self.silhouette)
        ]

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        scores = [f"{name} {found.silhouette.mean():.2f}" for name, found in models.items()]
        return [
            Figure(
                "head-tsne",
                "t-SNE of the outputs of the heads of the top encoder layer, one colour per head. "
                f"Distances have no unit. Mean silhouette: {'; '.join(scores)}.",
                partial(scatter, {name: (x.map, x.head) for name, x in models.items()}, "head"),
            )
        ]

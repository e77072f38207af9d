"""Head outputs in the plane: t-SNE and silhouette (Li et al. 2021, Figure 3)."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Mapping, Sequence, Tuple

import numpy as np
import torch

from capsnmt.analysis.attention import positions
from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, Picture
from capsnmt.analysis.forward_pass import Attended
from capsnmt.cli import not_installed
from capsnmt.report.figures import figure_of, style

ATTENTION = "enc-self"
TOKENS = 200
COLUMNS = 3  # panels of a figure side by side
PERPLEXITY = 30


class HeadProjection(Analysis):
    r"""Outputs :math:`O_h` of the heads of the top encoder layer, for a sample of tokens.

    ``x`` and ``y`` are the point of each head and token in scikit-learn's t-SNE. It can show groups
    where there are none: ``silhouette`` measures, on the outputs themselves, how much nearer a
    point is to the points of its own head than to those of the nearest other one, from -1 to 1
    (Rousseeuw 1987); ``silhouette_of_map`` measures the same on x and y. Their means are the scores
    of the system. All distances are Euclidean.

    The sample has up to 200 real tokens of all sentences, each with the same chance; systems that
    read the same sentences in the same batches have the same sample. The system's seed draws it,
    and is the seed of t-SNE.
    """

    name = "heads"
    title = "Outputs of the heads"
    explanation = (
        "The outputs of the heads of the top encoder layer for up to 200 random tokens, by t-SNE "
        "(Li et al. 2021, Figure 3). Groups of one colour show heads that compute something of "
        "their own. t-SNE can exaggerate: believe the silhouette, which is 1 for heads far apart, "
        "0 for heads that overlap, and is given for the outputs and for the map."
    )
    columns = (
        *("attention", "layer", "head", "sentence", "position"),
        *("x", "y", "silhouette", "silhouette_of_map"),
    )

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        try:
            import sklearn  # noqa: F401
        except ImportError as error:
            raise NotApplicableError(str(not_installed(error))) from None
        self.layer = len(system.model.encoder.layers)
        if system.model.encoder.layers[-1].self_attn.num_heads < 2:
            raise NotApplicableError("its top encoder layer has one head: there is none to compare")
        self.random = np.random.RandomState(system.seed)
        self.keys = torch.empty(0, dtype=torch.float64)
        self.sample = torch.empty(0, 2, dtype=torch.long)  # sentence and position
        self.heads = torch.empty(0)  # [tokens, H, d_h]

    def attended(self, call: Attended) -> None:
        if (call.attention, call.layer) != (ATTENTION, self.layer):
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

    def finish(self) -> None:
        """Project the sample and measure its groups; points are ordered by token, then head."""
        points = self.heads.flatten(0, 1).numpy()
        self.head = np.tile(np.arange(self.heads.size(1)), len(self.heads))
        self.map = project(points, self.system.seed)
        self.silhouette = silhouette(points, self.head)
        self.silhouette_of_map = silhouette(self.map, self.head)

    def rows(self) -> List[Sequence[Cell]]:
        where = self.sample.repeat_interleave(self.heads.size(1), 0).tolist()
        return [
            (ATTENTION, self.layer, int(head) + 1, *token, *map(float, values))
            for head, token, *values in zip(
                *(self.head, where, *self.map.T, self.silhouette, self.silhouette_of_map)
            )
        ]

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        scores = "; ".join(
            f"{name} {found.silhouette.mean():.2f} "
            f"(of the map {found.silhouette_of_map.mean():.2f})"
            for name, found in systems.items()
        )
        return [
            Picture(
                "heads",
                "Outputs of the heads of the top encoder layer, a panel per system.",
                "t-SNE of the outputs of the heads of the top encoder layer, one colour per head. "
                f"Mean silhouette: {scores}.",
                scatter({name: (found.map, found.head) for name, found in systems.items()}),
            )
        ]


def project(points: np.ndarray, seed: int = 1) -> np.ndarray:
    """Return the t-SNE of points ``[n, d]``, ``[n, 2]``; zeros where all points are one."""
    from sklearn.manifold import TSNE

    if not np.ptp(points, axis=0).any():  # no direction to start from
        return np.zeros((len(points), 2))
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (len(points) - 1) / 3),
        init="pca",
        learning_rate="auto",
        random_state=seed,
    )
    return tsne.fit_transform(points)


def silhouette(points: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the silhouette of each point; NaN where every group has one point."""
    from sklearn.metrics import silhouette_samples

    if len(set(groups.tolist())) == len(groups):
        return np.full(len(groups), np.nan)
    return silhouette_samples(points, groups)


def scatter(maps: Mapping[str, Tuple[np.ndarray, np.ndarray]]) -> Callable[[], Any]:
    """Return a function that draws the points of each system, coloured by their head."""

    def draw() -> Any:
        columns = min(len(maps), COLUMNS)
        rows = math.ceil(len(maps) / columns)
        figure = figure_of(8 / columns * rows)
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes in panels[len(maps) :]:
            axes.set_axis_off()
        for axes, (name, (points, head)) in zip(panels, maps.items()):
            for number in range(int(head.max()) + 1):
                axes.scatter(
                    *points[head == number].T,
                    s=8,
                    label=str(number + 1),
                    **style(number),
                )
            axes.set_title(name)
            axes.set_xticks([])  # distances in t-SNE have no unit
            axes.set_yticks([])
            axes.set_aspect("equal", adjustable="datalim")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(
            handles,
            names,
            title="head",
            loc="outside right center",
            frameon=False,
            markerscale=2,
        )
        return figure

    return draw

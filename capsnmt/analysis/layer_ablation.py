"""Loss without one layer of the encoder."""

from __future__ import annotations

from typing import Any, ClassVar, Iterator, List, Sequence
from unittest import mock

import torch
from torch import Tensor

from capsnmt.analysis.ablation import INCREASE, MEASURES, LossAblation, Replacement
from capsnmt.analysis.base import NotApplicableError, StackStates
from capsnmt.analysis.means import StreamingMeans
from capsnmt.analysis.plots import PointsByLayer


class LayerAblation(LossAblation):
    """Loss when the decoder does not see the output of one encoder layer (Ampomah et al. 2020).

    The output is replaced by zeros, as ``--mlmha-mask-source`` does at generation, and by its mean
    over all real tokens of all chosen sentences. Zeros are an input that training has never seen;
    the mean takes away only what differs between tokens. The layers above still read the output.

    The states are those that the decoder reads, after a final normalisation and before any
    aggregation. Layer 0, the embeddings, is one of them with transparent attention.
    """

    name = "layer_ablation"
    columns: ClassVar[Sequence[str]] = ("layer", "replacement", *MEASURES)
    plots: ClassVar[Sequence[PointsByLayer]] = (
        PointsByLayer(
            *("layer-ablation", "increase", INCREASE, "replacement"),
            "Increase of the loss when the decoder sees zeros, or a layer's mean, in place of the "
            "output of one encoder layer.",
        ),
    )

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        encoder = model.model.encoder
        layers, lowest = len(encoder.layers), 1
        if encoder.transparent is not None:
            lowest = 0
        elif encoder.layer_aggregation is None:
            lowest = layers - encoder.num_sources + 1
        if lowest == layers:
            raise NotApplicableError(
                "the decoder reads the top encoder layer only; with --mlmha, or with "
                "--layer-aggregation of the encoder, it reads several"
            )
        self.layers = range(lowest, layers + 1)
        self.means: StreamingMeans[int] = StreamingMeans()

    def on_states(self, states: StackStates) -> None:
        real = states.batch.source
        for layer in self.layers:
            of_tokens = states.encoder_normalised[layer][real].double()
            self.means.add(layer, of_tokens.sum(0), real.sum())

    def replacements(self, model: Any) -> Iterator[Replacement]:
        combine = model.encoder.combine
        for layer in self.layers:
            mean = self.means[layer]
            for by, value in (("zeros", torch.zeros_like(mean)), ("mean", mean)):

                def changed(
                    states: List[Tensor], layer: int = layer, value: Tensor = value
                ) -> Tensor:
                    H = states[layer]
                    replaced = value.to(H).expand_as(H)
                    return combine([*states[:layer], replaced, *states[layer + 1 :]])

                yield (layer, by), mock.patch.object(model.encoder, "combine", changed)

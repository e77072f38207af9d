"""Importance of encoder layers to the decoder (Ampomah et al. 2020, Table 7)."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Tuple

import torch
from torch import Tensor

from capsnmt.analysis.ablation import INTACT, MEASURES, Ablation, Key
from capsnmt.analysis.base import NotApplicableError, Picture
from capsnmt.analysis.drawing import Points, points_by_layer
from capsnmt.analysis.observation import Batch, Stacks
from capsnmt.analysis.sums import Sums

REPLACEMENTS = ("zeros", "mean")


class LayerAblation(Ablation):
    """Loss when the decoder does not see the output of one encoder layer.

    The output is replaced by zeros, as ``--mlmha-mask-source`` does at generation, and by its mean
    over all real tokens of all chosen sentences. Zeros are an input that training has never seen;
    the mean takes away only what differs between tokens. The layers above still read the output.

    The states are those that the decoder reads, after a final normalisation and before any
    aggregation. Layer 0, the embeddings, is one of them with transparent attention.
    """

    name = "layer_ablation"
    title = "Importance of encoder layers"
    explanation = (
        "How much the loss per target token increases when the decoder does not see the output of "
        "one encoder layer (Ampomah et al. 2020, Table 7), in nats, on a sample of sentences. The "
        "output is replaced by zeros, or by its mean over all tokens, which is fairer: the model "
        "has never seen zeros. A difference of less than two standard errors may be chance."
    )
    columns = ("layer", "replacement", *MEASURES)

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.layers = layers_read(system.model.encoder)
        if not self.layers:
            raise NotApplicableError(
                "its decoder reads the top encoder layer only (--mlmha, or --layer-aggregation of "
                "the encoder, would let it read several)"
            )
        self.means: Sums[int] = Sums()

    def passed(self, stacks: Stacks) -> None:
        states = self.system.model.encoder.normalise(stacks.encoder)
        real = stacks.batch.source
        for layer in self.layers:
            self.means.add(layer, states[layer][real].double().sum(0), real.sum())

    def ablations(self, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        encoder = self.system.model.encoder
        encoded = self.encode(batch, return_all_hiddens=True)
        yield INTACT, self.loss_of(batch, encoded)
        states = encoder.normalise(encoded["encoder_states"])
        for layer in self.layers:
            mean = self.means.ratio(layer).to(states[layer])
            for replacement, value in zip(REPLACEMENTS, (torch.zeros_like(mean), mean)):
                changed = list(states)
                changed[layer] = value.expand_as(states[layer])
                output = {**encoded, "encoder_out": [encoder.combine(changed)]}
                yield (layer, replacement), self.loss_of(batch, output)

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        names = {"zeros": "zeros", "mean": "its mean over all tokens"}
        panels: Points = {}
        for name, analysis in systems.items():
            for layer, by, _, increase, _ in analysis.rows():
                panels.setdefault(names[by], {}).setdefault(name, []).append((layer, increase))
        return [
            Picture(
                "layer-ablation",
                "Increase of the loss when an encoder layer's output is replaced, by layer.",
                "Increase of the loss when the decoder sees zeros, or a layer's mean, instead of "
                "the output of one encoder layer.",
                points_by_layer(panels, "increase, nats per token"),
            )
        ]


def layers_read(encoder: Any) -> List[int]:
    """Return the encoder layers that the decoder reads, if several; 0 is the embeddings."""
    layers = len(encoder.layers)
    if encoder.transparent is not None:
        return list(range(layers + 1))
    if encoder.layer_aggregation is not None:
        return list(range(1, layers + 1))
    if encoder.num_sources > 1:
        return list(range(layers - encoder.num_sources + 1, layers + 1))
    return []

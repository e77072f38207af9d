"""Importance of encoder layers to the decoder (Ampomah et al. 2020, Table 7)."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import torch
from torch import Tensor
from tqdm import tqdm

from capsnmt.analysis.ablation import INTACT, MEASURES, Ablation, Key, method_replaced
from capsnmt.analysis.base import Cell, NotApplicableError, Picture, Table
from capsnmt.analysis.forward_pass import Batch, Stacks
from capsnmt.analysis.layer_bleu import tokenised_bleu, translate
from capsnmt.analysis.means import Sums
from capsnmt.analysis.plots import Points, points_by_layer
from capsnmt.evaluation.scores import Score

REPLACEMENTS = ("zeros", "mean")


class LayerAblation(Ablation):
    """Loss, and BLEU, when the decoder does not see the output of one encoder layer.

    The output is replaced by zeros, as ``--mlmha-mask-source`` does at generation, and by its mean
    over all real tokens of all chosen sentences. Zeros are an input that training has never seen;
    the mean takes away only what differs between tokens. The layers above still read the output.

    The states are those that the decoder reads, after a final normalisation and before any
    aggregation. Layer 0, the embeddings, is one of them with transparent attention.

    BLEU takes a generation for each row, on a sample of ``--ablation-translations`` sentences; none
    by default.
    """

    name = "layer_ablation"
    title = "Importance of encoder layers"
    explanation = (
        "How much the loss per target token increases when the decoder does not see the output of "
        "one encoder layer (Ampomah et al. 2020, Table 7), in nats, on a sample of sentences. The "
        "output is replaced by zeros, or by its mean over all tokens, which is fairer: the model "
        "has never seen zeros. A difference of less than two standard errors may be chance. With "
        "--ablation-translations also in BLEU of translations, on tokens without subword marks, "
        "and the p-value of a paired bootstrap against the intact model, which is the first row."
    )
    columns = ("layer", "replacement", *MEASURES)
    bleu_columns = ("layer", "replacement", "bleu", "difference", "p_value", "signature")

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.layers = layers_read(system.model.encoder)
        if not self.layers:
            raise NotApplicableError(
                "its decoder reads the top encoder layer only (--mlmha, or --layer-aggregation of "
                "the encoder, would let it read several)"
            )
        self.means: Sums[int] = Sums()
        self.bleu: Dict[Key, Score] = {}

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
        for key in self.keys():
            output = {**encoded, "encoder_out": [encoder.combine(self.without(key, states))]}
            yield key, self.loss_of(batch, output)

    def keys(self) -> List[Key]:
        """Return layer and replacement of each ablation."""
        return [(layer, replacement) for layer in self.layers for replacement in REPLACEMENTS]

    def without(self, key: Key, states: Sequence[Tensor]) -> List[Tensor]:
        """Return the states with those of one layer replaced."""
        layer, replacement = key
        value = self.means.ratio(layer).to(states[layer])
        if replacement == "zeros":
            value = torch.zeros_like(value)
        return [value.expand_as(H) if number == layer else H for number, H in enumerate(states)]

    def finish(self) -> None:
        """Run all ablations on the sample, then translate under each, if asked to."""
        super().finish()
        if not self.system.options.ablation_translations:
            return
        sample = self.system.sample(self.system.options.ablation_translations)
        encoder = sample.model.encoder
        combine = encoder.combine
        keys = [INTACT, *self.keys()]
        translations = []
        with tqdm(
            total=len(keys) * sum(map(len, sample.numbers)),
            desc=f"{sample.name}, translations without a layer",
            unit=" sentences",
            mininterval=1,
            disable=None,  # a log is no terminal
        ) as progress:
            for key in keys:

                def changed(states: List[Tensor], key: Key = key) -> Tensor:
                    return combine(self.without(key, states) if key else states)

                with method_replaced(encoder, "combine", changed):
                    translations.append(translate(sample, progress))
        self.bleu = dict(zip(keys, tokenised_bleu(translations)))

    def tables(self) -> Dict[str, Table]:
        """Return the losses and, if it translated, BLEU."""
        found = super().tables()
        if self.bleu:
            found[f"{self.name}_bleu"] = Table(self.bleu_columns, self.bleu_rows())
        return found

    def bleu_rows(self) -> List[Sequence[Cell]]:
        """Return the rows of the CSV file with BLEU, that of the intact model first."""
        intact = self.bleu[INTACT].score
        rows: List[Sequence[Cell]] = [
            (None, "none", intact, None, None, self.bleu[INTACT].signature)
        ]
        for key in self.keys():
            score = self.bleu[key]
            rows.append((*key, score.score, score.score - intact, score.p_value, score.signature))
        return rows

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

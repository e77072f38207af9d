"""Ablation: how much the loss increases without a head, or without a layer of the encoder."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import Tensor, nn

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError
from capsnmt.analysis.forward_pass import AttentionCall, Batch, StackStates
from capsnmt.analysis.hooks import attentions
from capsnmt.analysis.means import StreamingMeans
from capsnmt.analysis.plots import PointsByLayer
from capsnmt.models.config import ATTENTIONS

Key = Tuple[Any, ...]
INTACT: Key = ()
INCREASE = "increase, nats per token"


class LossAblation(Analysis):
    r"""Loss with a part of the model replaced, and its increase over the loss of the intact model.

    The loss is the cross-entropy without label smoothing, in nats per target token, with the
    decoder teacher-forced. With sentence losses :math:`\ell_s` and :math:`\ell'_s`, of
    :math:`n_s` tokens, the increase is the ratio :math:`R = \sum_s d_s / \sum_s n_s` of the paired
    differences :math:`d_s = \ell'_s - \ell_s`, with the standard error of a ratio of sums over S
    sentences

    .. math:: \sqrt{\tfrac{S}{S - 1} \sum_s (d_s - R n_s)^2} \Big/ \sum_s n_s

    It runs the model once for each part, on a sample of ``--ablation-sentences`` sentences, after
    the other analyses.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not model.settings.ablation_sentences:
            raise NotApplicableError("--ablation-sentences is 0")
        self.losses: Dict[Key, Tensor] = {}

    def ablations(self, model: Any, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        """Yield ``INTACT`` and every ablation, with the loss of each sentence."""
        raise NotImplementedError

    @torch.no_grad()
    def finish(self, model: Any) -> None:
        """Run all ablations on the sample."""
        sample = model.sample(model.settings.ablation_sentences)
        self.sentences = len(sample.chosen)
        losses: Dict[Key, List[Tensor]] = {}
        tokens = []
        for batch in sample.batches(self.title.lower()):
            tokens.append(batch.target.sum(1).double().cpu())
            for key, of_sentences in self.ablations(model.model, batch):
                losses.setdefault(key, []).append(of_sentences.cpu())
        self.tokens = torch.cat(tokens)
        self.losses = {key: torch.cat(parts) for key, parts in losses.items()}

    def rows(self) -> List[Sequence[Cell]]:
        intact = self.losses[INTACT]
        return [
            (*key, (losses.sum() / self.tokens.sum()).item(), *self.increase(losses - intact))
            for key, losses in self.losses.items()
            if key != INTACT
        ]

    def increase(self, differences: Tensor) -> Tuple[float, float]:
        """Return the increase per token and its standard error; NaN for one sentence."""
        count, tokens = len(differences), self.tokens.sum()
        ratio = differences.sum() / tokens
        squares = (differences - ratio * self.tokens).square().sum()
        error = (
            (squares * count / (count - 1)).sqrt() / tokens if count > 1 else squares * torch.nan
        )
        return ratio.item(), error.item()


class HeadAblation(LossAblation):
    """Loss without one head, for every head of every attention (Michel et al. 2019).

    The output O_h of the head is zero before the heads are aggregated, by W^o or by routing. Heads
    are the attention's: with M-10 and M-11, n H of them, source by source.
    """

    name = "head_ablation"
    title = "Importance of heads"
    explanation = (
        "How much the loss per target token increases when the output of one head is set to zero "
        "(Michel et al. 2019), in nats, on a sample of sentences. Near 0 the model does without "
        "the head, and below 0 better; the model is not trained again. A difference of less than "
        "two standard errors may be chance."
    )
    columns = ("attention", "layer", "head", "loss", "increase", "standard_error")
    plots = (
        PointsByLayer(
            *("head-ablation", "increase", INCREASE, "attention"),
            "Increase of the loss when one head is set to zero. One point per head; a line joins "
            "the means over the heads of a layer.",
            error="standard_error",
        ),
    )

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.heads: Dict[Tuple[str, int], int] = {}

    def on_attention(self, call: AttentionCall) -> None:
        self.heads[call.place, call.layer] = call.heads.size(1)

    def ablations(self, model: Any, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        encoded = encode(model, batch)
        yield INTACT, loss_of(model, batch, encoded)
        places = [*attentions(model.encoder), *attentions(model.decoder)]
        for place, layer, attention in sorted(places, key=lambda each: ATTENTIONS.index(each[0])):
            for head in range(self.heads[place, layer]):
                with method_replaced(attention, "attend", without_head(attention.attend, head)):
                    # the encoder runs again only for its own heads
                    changed = encode(model, batch) if place == "enc-self" else encoded
                    yield (place, layer, head + 1), loss_of(model, batch, changed)


class LayerAblation(LossAblation):
    """Loss when the decoder does not see the output of one encoder layer.

    See :class:`ReplacedLayers` for what is replaced, and by what.
    """

    name = "layer_ablation"
    title = "Importance of encoder layers"
    explanation = (
        "How much the loss per target token increases when the decoder does not see the output of "
        "one encoder layer (Ampomah et al. 2020, Table 7), in nats, on a sample of sentences. The "
        "output is replaced by zeros, or by its mean over all tokens, which is fairer: the model "
        "has never seen zeros. A difference of less than two standard errors may be chance."
    )
    columns = ("layer", "replacement", "loss", "increase", "standard_error")
    plots = (
        PointsByLayer(
            *("layer-ablation", "increase", INCREASE, "replacement"),
            "Increase of the loss when the decoder sees zeros, or a layer's mean, in place of the "
            "output of one encoder layer.",
            error="standard_error",
        ),
    )

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.layers = ReplacedLayers(model.model.encoder)

    def on_states(self, states: StackStates) -> None:
        self.layers.add(states)

    def ablations(self, model: Any, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        encoder = model.encoder
        encoded = encode(model, batch)
        yield INTACT, loss_of(model, batch, encoded)
        states = encoder.normalise(encoded["encoder_states"])
        for key in self.layers.keys:
            output = encoder.combine(self.layers.replaced(key, states))
            yield key, loss_of(model, batch, {**encoded, "encoder_out": [output]})


class ReplacedLayers:
    """Replaces the output of one encoder layer, as the decoder sees it (Ampomah et al. 2020).

    The output is replaced by zeros, as ``--mlmha-mask-source`` does at generation, and by its mean
    over all real tokens of all chosen sentences. Zeros are an input that training has never seen;
    the mean takes away only what differs between tokens. The layers above still read the output.

    The states are those that the decoder reads, after a final normalisation and before any
    aggregation. Layer 0, the embeddings, is one of them with transparent attention.

    Raises:
        NotApplicableError: the decoder reads one layer.
    """

    def __init__(self, encoder: Any) -> None:
        layers, lowest = len(encoder.layers), 1
        if encoder.transparent is not None:
            lowest = 0
        elif encoder.layer_aggregation is None:
            lowest = layers - encoder.num_sources + 1
        if lowest == layers:
            raise NotApplicableError(
                "its decoder reads the top encoder layer only (--mlmha, or --layer-aggregation of "
                "the encoder, would let it read several)"
            )
        self.layers = range(lowest, layers + 1)
        self.keys: List[Key] = [(layer, by) for layer in self.layers for by in ("zeros", "mean")]
        self.means: StreamingMeans[int] = StreamingMeans()

    def add(self, states: StackStates) -> None:
        """Add the encoder's states to the means."""
        real = states.batch.source
        for layer in self.layers:
            of_tokens = states.encoder_normalised[layer][real].double()
            self.means.add(layer, of_tokens.sum(0), real.sum())

    def replaced(self, key: Key, states: Sequence[Tensor]) -> List[Tensor]:
        """Return the normalised states of all layers, with one of them replaced."""
        layer, by = key
        value = self.means[layer].to(states[layer])
        if by == "zeros":
            value = torch.zeros_like(value)
        return [value.expand_as(H) if number == layer else H for number, H in enumerate(states)]


def encode(model: Any, batch: Batch) -> Any:
    """Return the encoder's output on a batch, with the states of all layers."""
    inputs = batch.sample["net_input"]
    return model.encoder(
        inputs["src_tokens"], src_lengths=inputs["src_lengths"], return_all_hiddens=True
    )


def loss_of(model: Any, batch: Batch, encoded: Any) -> Tensor:
    """Return the loss of each sentence from an encoder's output, ``[B]``, in fp64."""
    output = model.decoder(batch.sample["net_input"]["prev_output_tokens"], encoder_out=encoded)
    log_probs = model.get_normalized_probs(output, log_probs=True, sample=batch.sample)
    of_target = log_probs.gather(-1, batch.sample["target"].unsqueeze(-1)).squeeze(-1)
    return -(of_target.double() * batch.target).sum(1)


def without_head(attend: Callable[..., Any], head: int) -> Callable[..., Any]:
    """Return ``Attention.attend`` with the output O_h of one head (from 0) set to zero."""

    def changed(*args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        heads, weights = attend(*args, **kwargs)
        heads = heads.clone()
        heads[:, head] = 0
        return heads, weights

    return changed


@contextmanager
def method_replaced(module: nn.Module, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one module inside the ``with`` block."""
    module.__dict__[name] = method  # hides the method of the class
    try:
        yield
    finally:
        del module.__dict__[name]

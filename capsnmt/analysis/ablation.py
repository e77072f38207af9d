"""Ablation: how much is lost with a part of the model replaced, such as a head or a layer."""

from contextlib import nullcontext
from typing import Any, Callable, ClassVar, ContextManager, Dict, Iterator, List, Sequence, Tuple
from unittest import mock

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import strip_pad
from torch import Tensor, nn

from capsnmt.analysis.base import Analysis, Cell, NotApplicableError, StackStates, attentions
from capsnmt.analysis.model import Batch
from capsnmt.analysis.plots import PointsByLayer
from capsnmt.evaluation.metrics import measure_of, multi_bleu_metric
from capsnmt.evaluation.resampling import resample
from capsnmt.evaluation.scores import RANDOMIZATION, SAMPLES, SEED, Test
from capsnmt.evaluation.significance import holm, scores_of
from capsnmt.forms import marks_of
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.layer_aggregation.connection import WeightedConnection

Key = Tuple[Any, ...]
INTACT: Key = ()
Replacement = Tuple[Key, ContextManager[Any]]  # a row, and a block in which a part is replaced
INCREASE = "increase, nats per token"
MEASURES = ("loss", "increase", "standard_error")  # the last columns
# D: beam and length penalty of Vaswani et al. 2017, which Ampomah et al. 2020 follow, for all
# models; a translation is at most 50 subwords longer than the longest source of its batch, also of
# a model that never ends it.
GENERATION = {"beam_size": 4, "len_penalty": 0.6, "max_len_a": 1, "max_len_b": 50}
TEST = Test(baseline="intact", method=RANDOMIZATION, samples=SAMPLES[RANDOMIZATION], seed=SEED)


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

    size = "ablation_sentences"

    def replacements(self, model: Any) -> Iterator[Replacement]:
        """Yield every part that is replaced in turn."""
        raise NotImplementedError

    @torch.no_grad()
    def finish(self, model: Any) -> None:
        """Read the sample with the intact model and with each replacement."""
        sample = model.sample(getattr(model.scope, self.size))
        self.sentences = len(sample.chosen)
        parts: List[Replacement] = [(INTACT, nullcontext()), *self.replacements(model.model)]
        losses: Dict[Key, List[Tensor]] = {}
        tokens = []
        for batch in sample.batches(self.name):
            tokens.append(batch.target.sum(1).double().cpu())
            for key, replaced in parts:
                with replaced:
                    losses.setdefault(key, []).append(loss_of(model.model, batch).cpu())
        self.tokens = torch.cat(tokens)
        self.losses = {key: torch.cat(each) for key, each in losses.items()}

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
        variance = squares * count / (count - 1) if count > 1 else squares * torch.nan
        return ratio.item(), (variance.sqrt() / tokens).item()


class HeadAblation(LossAblation):
    """Loss without one head, for every head of every attention (Michel et al. 2019).

    The output O_h of the head is zero before the heads are aggregated, by W^o or by routing. Heads
    are the attention's: with M-10 and M-11, n H of them, source by source.
    """

    name = "head_ablation"
    columns = ("attention", "layer", "head", *MEASURES)
    plots = (
        PointsByLayer(
            *("head-ablation", "increase", INCREASE, "attention"),
            "Increase of the loss when one head is set to zero. One point per head; a line joins "
            "the means over the heads of a layer.",
        ),
    )

    def replacements(self, model: Any) -> Iterator[Replacement]:
        places = [*attentions(model.encoder), *attentions(model.decoder)]
        for place, layer, attention in sorted(places, key=lambda each: ATTENTIONS.index(each[0])):
            for head in range(attention.call_heads()):
                changed = without_head(attention.attend, head)
                yield (place, layer, head + 1), mock.patch.object(attention, "attend", changed)


def loss_of(model: Any, batch: Batch) -> Tensor:
    """Return the loss of each sentence, ``[B]``, in fp64."""
    output = model(**batch.sample["net_input"])
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


class LayerAblation(LossAblation):
    """Loss when the decoder does not see the output of one encoder layer (Ampomah et al. 2020).

    The output is replaced by zeros, as ``--mlmha-mask-source`` does at generation, and by its mean
    over all real tokens of all chosen sentences. Zeros are an input that training has never seen;
    the mean takes away only what differs between tokens. The layers above still read the output.

    The states are those that the decoder reads, after a final normalisation and before any
    aggregation. Layer 0, the embeddings, is one of them with transparent attention, and in a
    connected stack (dlcl and dense), where the states are those that its output is the sum of.
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
        weighted = isinstance(encoder.connection, WeightedConnection)
        self.connected = weighted and encoder.num_sources == 1
        if encoder.transparent is not None or self.connected:
            lowest = 0
        elif encoder.layer_aggregation is None:
            lowest = layers - encoder.num_sources + 1
        if lowest == layers:
            only = "the top encoder layer" if encoder.connection is None else "sums of sublayers"
            raise NotApplicableError(
                f"the decoder reads {only} only; with --mlmha, or with --layer-aggregation of "
                f"the encoder but for attention-residuals, it reads several layers"
            )
        self.layers = range(lowest, layers + 1)

    def on_states(self, states: StackStates) -> None:
        if not self.connected:
            self._add(states.encoder_normalised, states.batch.source)

    def on_aggregation(
        self, side: str, module: nn.Module, layers: List[Tensor], real: Tensor
    ) -> None:
        if self.connected and side == "encoder" and len(layers) > self.layers[-1]:
            self._add(layers, real)

    def _add(self, states: Sequence[Tensor], real: Tensor) -> None:
        for layer in self.layers:
            of_tokens = states[layer][real].double()
            self.means["states"].add(layer, of_tokens.sum(0), real.sum())

    def replacements(self, model: Any) -> Iterator[Replacement]:
        reader, name = model.encoder, "combine"
        if self.connected:
            reader, name = model.encoder.connection, "forward"
        read = getattr(reader, name)
        for layer in self.layers:
            mean = self.means["states"][layer]
            for by, value in (("zeros", torch.zeros_like(mean)), ("mean", mean)):

                def changed(states: List[Tensor], layer: int = layer, value: Tensor = value) -> Any:
                    if len(states) > self.layers[-1]:  # fewer are read by a layer of the encoder
                        H = states[layer]
                        replaced = value.to(H).expand_as(H)
                        states = [*states[:layer], replaced, *states[layer + 1 :]]
                    return read(states)

                yield (layer, by), mock.patch.object(reader, name, changed)


class LayerBleu(LayerAblation):
    """BLEU when the decoder does not see the output of one encoder layer, by beam search.

    A generation for each replacement of :class:`LayerAblation`, on a sample of
    ``--ablation-translations`` sentences.

    **D**: BLEU is the score of multi-bleu.perl, on tokens without subword marks.
    """

    name = "layer_bleu"
    columns = ("layer", "replacement", "bleu", "difference", "p_value", "p_holm", "signature")
    plots = ()
    size = "ablation_translations"

    @torch.no_grad()
    def finish(self, model: Any) -> None:
        """Translate with and without each layer."""
        sample = model.sample(model.scope.ablation_translations)
        self.sentences = len(sample.chosen)
        intact = (None, "none"), nullcontext()
        parts: List[Replacement] = [intact, *self.replacements(model.model)]
        self.keys = [key for key, _ in parts]
        outputs = []
        for (layer, by), replaced in parts:
            label = "the intact model" if layer is None else f"without layer {layer} ({by})"
            with replaced:
                references, hypotheses = translate(sample, f"translations: {label}")
            outputs.append(hypotheses)
        bleu = measure_of(multi_bleu_metric([references]))
        statistics = [bleu.statistics(hypotheses) for hypotheses in outputs]
        pairs = [0] * len(outputs)
        scored = resample({"bleu": (bleu, statistics)}, pairs, TEST)
        self.scores = scores_of(scored["bleu"], pairs, TEST)

    def rows(self) -> List[Sequence[Cell]]:
        corrected = [None, *holm([x.p_value for x in self.scores if x.p_value is not None])]
        return [
            (*key, each.score, each.delta, each.p_value, p_holm, each.signature)
            for key, each, p_holm in zip(self.keys, self.scores, corrected)
        ]


def translate(sample: Any, progress: str) -> Tuple[List[str], List[str]]:
    """Return references and best translations, without subword marks, in the order of the data."""
    dictionary = sample.task.target_dictionary
    generator = SequenceGenerator([sample.model], dictionary, **GENERATION)
    marks = marks_of(dictionary.symbols)
    found = {}
    for batch in sample.batches(progress):
        hypotheses = generator.generate([sample.model], batch.sample)
        for number, target, of_sentence in zip(batch.numbers, batch.sample["target"], hypotheses):
            found[number] = (
                # unknown words of the reference are written so that no hypothesis matches them
                dictionary.string(strip_pad(target, dictionary.pad()), marks, escape_unk=True),
                dictionary.string(of_sentence[0]["tokens"], marks),
            )
    references, best = zip(*(found[number] for number in sorted(found)))
    return list(references), list(best)

"""Ablation: how much the loss increases with a part of the model replaced, such as a head."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Sequence, Tuple
from unittest import mock

import torch
from torch import Tensor

from capsnmt.analysis.base import Analysis, AttentionCall, Cell, NotApplicableError
from capsnmt.analysis.hooks import attentions
from capsnmt.analysis.model import Batch
from capsnmt.analysis.plots import PointsByLayer
from capsnmt.models.config import ATTENTIONS

Key = Tuple[Any, ...]
INTACT: Key = ()
Replacement = Tuple[Key, ContextManager[Any]]  # a row, and a block in which a part is replaced
INCREASE = "increase, nats per token"
MEASURES = ("loss", "increase", "standard_error")  # the last columns


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

    size = "ablation_sentences"  # the setting of the size of the sample

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if not getattr(model.scope, self.size):
            raise NotApplicableError(f"--{self.size.replace('_', '-')} is 0")
        self.losses: Dict[Key, Tensor] = {}

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

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.heads: Dict[Tuple[str, int], int] = {}

    def on_attention(self, call: AttentionCall) -> None:
        self.heads[call.place, call.layer] = call.heads.size(1)

    def replacements(self, model: Any) -> Iterator[Replacement]:
        places = [*attentions(model.encoder), *attentions(model.decoder)]
        for place, layer, attention in sorted(places, key=lambda each: ATTENTIONS.index(each[0])):
            for head in range(self.heads[place, layer]):
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

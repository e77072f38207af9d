"""What the tests of the criterion share: a batch, and the criterion on a small model."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from torch import Tensor, nn

from capsnmt.criterions import LabelSmoothedCrossEntropyWithDisagreementCriterion
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.disagreement import TERMS
from tests.support import PAD, TASK, batch, build, sentences, shifted

NAME = "label_smoothed_cross_entropy_with_disagreement"
ALL = {"disagreement": ",".join(TERMS), "disagreement_attention": ",".join(ATTENTIONS)}
SOURCES, TARGETS = sentences(3, 6, 1), sentences(5, 2, 4, seed=1)


def criterion(sentence_avg: bool = False, **settings: Any) -> Any:
    return LabelSmoothedCrossEntropyWithDisagreementCriterion(TASK, sentence_avg, 0.1, **settings)


def make_sample(
    sources: Sequence[Tensor], targets: Sequence[Tensor], left_pad: bool = True
) -> Dict[str, Any]:
    """A batch as the translation task collates it."""
    source, target = batch(sources, left_pad), batch(targets, left_pad=False)
    return {
        "ntokens": int(target.ne(PAD).sum()),
        "target": target,
        "net_input": {
            "src_tokens": source,
            "src_lengths": source.ne(PAD).sum(1),
            "prev_output_tokens": shifted(target),
        },
    }


SAMPLE = make_sample(SOURCES, TARGETS)


def train(*flags: str, arch: str = "capsnmt_transformer") -> nn.Module:
    return build(arch, "--attention-dropout", "0", *flags).train()


def gradients(model: nn.Module, loss: Tensor) -> Dict[str, Tensor]:
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

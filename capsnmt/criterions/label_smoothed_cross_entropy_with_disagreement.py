"""Label-smoothed cross-entropy with disagreement of attention heads (Li et al. 2021, section 3.1).

No postponed annotations here: fairseq reads the types off the dataclass.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor, nn

from capsnmt.errors import ConfigurationError
from capsnmt.models.config import ATTENTIONS
from capsnmt.models.selection import parse_attentions, parse_choices
from capsnmt.modules.attention import Attention
from capsnmt.modules.disagreement import TERMS, DisagreementRecord, record_disagreement

PREFIX = "disagreement_"


@dataclass
class LabelSmoothedCrossEntropyWithDisagreementCriterionConfig(
    LabelSmoothedCrossEntropyCriterionConfig
):
    """Label smoothing's options, and which heads must differ in what."""

    disagreement: str = field(
        # the best of the three in the paper (Table 1), where combinations gain nothing over it
        default="output",
        metadata={"help": f"what the heads must differ in: comma list of {', '.join(TERMS)}"},
    )
    disagreement_attention: str = field(
        default="enc-self",
        metadata={"help": f"attentions it applies to: comma list of {', '.join(ATTENTIONS)}"},
    )
    disagreement_weight: float = field(
        default=1.0,
        metadata={"help": "lambda, the weight of every term; 0 only measures and logs them"},
    )


@register_criterion(
    "label_smoothed_cross_entropy_with_disagreement",
    dataclass=LabelSmoothedCrossEntropyWithDisagreementCriterionConfig,
)
class LabelSmoothedCrossEntropyWithDisagreementCriterion(LabelSmoothedCrossEntropyCriterion):
    r"""Label-smoothed cross-entropy, and in training what the heads have in common.

    .. math::
        \mathcal{L} = \mathcal{L}_{\mathrm{LS}} + \lambda \, n \sum_{a} \sum_{t}
        \frac{1}{|\mathrm{layers}_a|} \sum_{l \in \mathrm{layers}_a} D_{t}(a, l)

    over the chosen attentions :math:`a` and terms :math:`t` (eq. 5 to 7 with the sign of a loss),
    :math:`n` the sample size that fairseq divides the gradient by, so that :math:`\lambda` means
    the same whatever the batch, the accumulation and the number of workers. :math:`D` is a mean
    over the real tokens of the batch, in fp32. The layers are those that ran: layerdrop may leave
    none, which then adds nothing.

    **D**: the terms regularise training only. In evaluation they are measured and logged, and
    ``loss`` is the baseline's, so that validation losses and best checkpoints compare. In training
    ``loss`` is what is minimised; ``nll_loss`` and ``ppl`` are the likelihood alone in both.

    **D**: as the likelihood's, a batch's weight in an accumulated or distributed update is its
    sample size. Means over source tokens (``enc-self``; ``subspace`` of ``enc-dec``) are thus
    those of the united batch only as far as the batches have the same source tokens per target
    token.

    Raises:
        ConfigurationError: a term or an attention is unknown, or the weight is no finite number
            >= 0.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        disagreement: str = "output",
        disagreement_attention: str = "enc-self",
        disagreement_weight: float = 1.0,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        self.terms = parse_choices(disagreement, TERMS, "disagreement")
        self.attentions = parse_attentions(disagreement_attention, "disagreement_attention")
        self.weight = float(disagreement_weight)
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ConfigurationError(
                f"--disagreement-weight: {disagreement_weight}: give a number of 0 or more "
                f"(the paper uses 1.0; 0 only measures)"
            )

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The loss, the sample size, and what to log, as fairseq's criterions return them.

        Args:
            reduce: sum the loss over the tokens. A penalty belongs to no one token, so that the
                unreduced losses are those without it.
        """
        with record_disagreement(self.terms, self.attentions) as record:
            loss, sample_size, logging_output = super().forward(model, sample, reduce=reduce)
        self._require_attentions(model, record)
        measured = self._measure(record, sample["net_input"], like=loss)
        if model.training and reduce and self.weight > 0:
            loss = loss + self.weight * sample_size * sum(measured.values())
            logging_output["loss"] = loss.data
        for name, value in self._by_name(measured).items():
            logging_output[name] = value.data * sample_size
        return loss, sample_size, logging_output

    def _require_attentions(self, model: nn.Module, record: DisagreementRecord) -> None:
        """Exit, with the reason, where an attention measured nothing because there is none.

        Not a ConfigurationError: fairseq's trainer answers an exception in a training step with a
        ``crash.pt``, and there is no model to look at before the first step.
        """
        silent = self.attentions - {attention for attention, _ in record.values}
        if silent:  # layerdrop may have dropped every layer of an attention that does exist
            modules = (module for module in model.modules() if isinstance(module, Attention))
            existing = {module.role for module in modules if module.role is not None}
            for attention in sorted(silent - existing):
                has = ", ".join(name for name in ATTENTIONS if name in existing)
                raise SystemExit(
                    f"--disagreement-attention: this model has no {attention} attention that can "
                    f"be measured: " + (f"choose from {has}" if has else "use an --arch of capsnmt")
                )

    def _measure(
        self, record: DisagreementRecord, net_input: Dict[str, Any], like: Tensor
    ) -> Dict[Tuple[str, str], Tensor]:
        """The mean of each chosen term in each chosen attention, 0 where no layer ran.

        Every worker has the same keys in the same order: fairseq sums what workers log by position.
        """
        source = net_input["src_tokens"].ne(self.task.source_dictionary.pad())
        target = net_input["prev_output_tokens"].ne(self.padding_idx)
        measured = {}
        for term, attention in itertools.product(TERMS, ATTENTIONS):
            if term in self.terms and attention in self.attentions:
                mean = record.mean(attention, term, source, target)
                measured[term, attention] = like.new_zeros(()) if mean is None else mean
        return measured

    def _by_name(self, measured: Dict[Tuple[str, str], Tensor]) -> Dict[str, Tensor]:
        """What is logged: each term, and with several attentions also its part in each of them.

        **D**: a term of several attentions is their sum, which is what enters the loss.
        """
        named: Dict[str, Tensor] = {}
        for (term, _), value in measured.items():
            named[PREFIX + term] = named.get(PREFIX + term, 0) + value
        if len(self.attentions) > 1:
            for (term, attention), value in measured.items():
                named[f"{PREFIX}{term}_{attention.replace('-', '_')}"] = value
        return named

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the sums of what the workers and accumulated batches report."""
        super().reduce_metrics(logging_outputs)
        sample_size = sum(log.get("sample_size", 0) for log in logging_outputs)
        names = dict.fromkeys(name for log in logging_outputs for name in log)
        for name in names:
            if name.startswith(PREFIX):
                total = sum(log.get(name, 0) for log in logging_outputs)
                metrics.log_scalar(name, total / sample_size, sample_size, round=3)

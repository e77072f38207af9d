"""Cross-entropy of classes, with accuracy and macro-F1."""

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from capsnmt.criterions.disagreement import WEIGHT, DisagreementPenalty, Measured, log_disagreement
from capsnmt.models.switches import check, switch
from capsnmt.modules.disagreement import TERMS, record_disagreement
from capsnmt.sentences.measures import Counts, accuracy, macro_f1

DIGITS = 3  # 0.001 percent is less than one example of any of the test sets


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Options of disagreement of the encoder's heads."""

    disagreement: str = switch(
        "none", "none, or in what the heads must differ: comma-separated list of {}", words=TERMS
    )
    disagreement_weight: float = switch(
        1.0, "lambda, the weight of every term", **WEIGHT, needs=[{"disagreement": TERMS}]
    )


@register_criterion("sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class SentenceClassificationCriterion(FairseqCriterion):
    r"""Cross-entropy of the true class, plus in training a penalty on the similarity of heads.

    .. math:: \mathcal{L} = -\sum_i \log p(y_i \mid x_i) + n \lambda \sum_t D_t

    over n examples. :math:`D_t` is disagreement of the encoder's heads (Li et al. 2021, section
    3.1) as in ``label_smoothed_cross_entropy_with_disagreement``: a mean over real tokens, added in
    training only.

    ``accuracy`` and ``macro_f1`` are percentages. They are ratios of sums over all examples of an
    update or validation set and over all workers, never means over the ratios of batches.
    """

    def __init__(self, task: Any, cfg: SentenceClassificationCriterionConfig) -> None:
        super().__init__(task)
        check(cfg, SentenceClassificationCriterionConfig)
        self.penalty: Optional[DisagreementPenalty] = None
        if cfg.disagreement != "none":
            weight = cfg.disagreement_weight
            self.penalty = DisagreementPenalty(cfg.disagreement, "enc-self", weight)

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Return the loss, the number of examples and the logging output."""
        logits, measured = self._measured(model, sample["net_input"])
        target, size = sample["target"], len(sample["target"])
        nll = F.cross_entropy(logits.float(), target, reduction="sum" if reduce else "none")
        loss = nll
        if self.penalty is not None and model.training and reduce and self.penalty.weight > 0:
            loss = loss + size * self.penalty.weight * sum(measured.values())
        outcomes = torch.stack([logits.argmax(-1), target, sample["bucket"]])
        classes = Counts.of(outcomes.cpu().numpy(), logits.size(-1)).classes
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll.data,
            "ntokens": sample["ntokens"],
            "nsentences": size,
            "sample_size": size,
            "classes": torch.from_numpy(classes),
        }
        if self.penalty is not None:
            for name, value in self.penalty.by_name(measured).items():
                logging_output[name] = value.data * size
        return loss, size, logging_output

    def _measured(self, model: nn.Module, net_input: Dict[str, Any]) -> Tuple[Tensor, Measured]:
        """Return the logits and the measured terms of the encoder's heads."""
        if self.penalty is None:
            return model(**net_input), {}
        real = net_input["src_tokens"].ne(self.task.source_dictionary.pad())
        with record_disagreement(self.penalty.terms, self.penalty.attentions, real) as record:
            logits = model(**net_input)
        self.penalty.require_attentions(model, record)
        return logits, self.penalty.measure(record, like=logits.float())

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log sums over workers and batches, and ratios of those sums."""

        def total(name: str) -> Any:
            return sum(torch.as_tensor(log[name]).double() for log in logging_outputs).cpu().numpy()

        size = float(total("sample_size"))
        for name in ("loss", "nll_loss"):
            metrics.log_scalar(name, float(total(name)) / size / math.log(2), size, round=DIGITS)
        # fairseq does not print a name with an underscore; the ratios divide its sums
        metrics.log_scalar("_classes", total("classes"))
        metrics.log_derived("accuracy", _accuracy)
        metrics.log_derived(
            "macro_f1", lambda found: round(macro_f1(found["_classes"].sum), DIGITS)
        )
        log_disagreement(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Return true: all values are sums. fairseq cannot gather anything else on a CPU."""
        return True


def _accuracy(meters: Any) -> float:
    right, _, truth = meters["_classes"].sum
    return round(accuracy(right.sum(), truth.sum()), DIGITS)

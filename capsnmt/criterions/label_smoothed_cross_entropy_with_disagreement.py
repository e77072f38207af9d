"""Label-smoothed cross-entropy with disagreement of attention heads (Li et al. 2021, sec. 3.1)."""

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

from fairseq.criterions import register_criterion
from torch import Tensor, nn

from capsnmt.criterions.chunked_label_smoothed_cross_entropy import (
    ChunkedLabelSmoothedCrossEntropyCriterion,
    ChunkedLabelSmoothedCrossEntropyCriterionConfig,
    finds_unused,
    unwrapped,
)
from capsnmt.criterions.disagreement import PREFIX, WEIGHT, DisagreementPenalty, log_disagreement
from capsnmt.models.selection import ATTENTIONS
from capsnmt.models.switches import Values, check, switch
from capsnmt.modules.disagreement import TERMS, record_disagreement

PENALISES: Values = {"disagreement_weight": ()}


@dataclass
class LabelSmoothedCrossEntropyWithDisagreementCriterionConfig(
    ChunkedLabelSmoothedCrossEntropyCriterionConfig
):
    """Options of label smoothing and of disagreement."""

    disagreement: str = switch(
        # the best of the three in the paper (Table 1); combinations gain nothing over it
        "output",
        "in what the heads must differ: comma-separated list of {}",
        words=TERMS,
    )
    disagreement_attention: str = switch(
        "enc-self", "attentions it applies to: comma-separated list of {}", words=ATTENTIONS
    )
    disagreement_weight: float = switch(1.0, "lambda, the weight of every term", **WEIGHT)
    disagreement_start_update: int = switch(
        0, "N: the first N updates minimise the likelihood alone", least=0, needs=[PENALISES]
    )
    disagreement_ramp_updates: int = switch(
        0, "M: then the weight grows linearly to lambda in M updates", least=0, needs=[PENALISES]
    )


@register_criterion(
    "label_smoothed_cross_entropy_with_disagreement",
    dataclass=LabelSmoothedCrossEntropyWithDisagreementCriterionConfig,
)
class LabelSmoothedCrossEntropyWithDisagreementCriterion(ChunkedLabelSmoothedCrossEntropyCriterion):
    r"""Label-smoothed cross-entropy, plus in training a penalty on the similarity of heads.

    .. math::
        \mathcal{L} = \mathcal{L}_{\mathrm{LS}} + \lambda \, n \sum_{a} \sum_{t}
        \frac{1}{|\mathrm{layers}_a|} \sum_{l \in \mathrm{layers}_a} D_{t}(a, l)

    over the chosen attentions :math:`a` and terms :math:`t` (eq. 5 to 7 with the sign of a loss, or
    a rival's: :mod:`capsnmt.modules.disagreement`).
    :math:`n` is the sample size by which fairseq divides the gradient, so :math:`\lambda` does not
    depend on batch size, accumulation and number of workers. :math:`D` is a mean over the real
    tokens of the batch, in fp32. The layers are those that ran; if layer dropout leaves none, they
    add nothing.

    **D**: the terms regularise training only. In evaluation they are measured and logged, and
    ``loss`` is the baseline's, so validation losses and best checkpoints are comparable. In
    training ``loss`` is the minimised value. ``nll_loss`` and ``ppl`` are the likelihood alone in
    both.

    **D**: the weight of a batch in an accumulated or distributed update is its sample size, as for
    the likelihood. Means over source tokens (``enc-self``; ``subspace`` of ``enc-dec``) therefore
    equal those of the combined batch only if the batches have the same ratio of source to target
    tokens.

    **D**: with ``--disagreement-start-update`` the weight is 0 at first, so that the likelihood
    alone leaves its first plateau (docs/disagreement.md says why). The paper's weight is constant.
    """

    def __init__(
        self, task: Any, cfg: LabelSmoothedCrossEntropyWithDisagreementCriterionConfig
    ) -> None:
        super().__init__(task, cfg)
        check(cfg, LabelSmoothedCrossEntropyWithDisagreementCriterionConfig)
        self.penalty = DisagreementPenalty(
            cfg.disagreement,
            cfg.disagreement_attention,
            cfg.disagreement_weight,
            cfg.disagreement_start_update,
            cfg.disagreement_ramp_updates,
        )

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """Return the loss, the sample size and the logging output, as all fairseq criterions.

        Unreduced losses exclude the penalty, which belongs to no single token.
        """
        real = (
            sample["net_input"]["src_tokens"].ne(self.task.source_dictionary.pad()),
            sample["net_input"]["prev_output_tokens"].ne(self.padding_idx),
        )
        with record_disagreement(self.penalty.terms, self.penalty.attentions, *real) as record:
            loss, sample_size, logging_output = super().forward(model, sample, reduce=reduce)
        self.penalty.require_attentions(model, record)
        self.require_decoder(model)
        measured = self.penalty.measure(record, like=loss)
        weight = self.penalty.weight_at(getattr(unwrapped(model), "num_updates", 0))
        if model.training and reduce and weight > 0:
            loss = loss + sample_size * weight * sum(measured.values())
            logging_output["loss"] = loss.data
        if self.penalty.start_update > 0 or self.penalty.ramp_updates > 1:
            logging_output[PREFIX + "weight"] = weight * sample_size
        for name, value in self.penalty.by_name(measured).items():
            logging_output[name] = value.data * sample_size
        return loss, sample_size, logging_output

    def require_decoder(self, model: nn.Module) -> None:
        """Exit if torch will refuse the update in which no layer of the decoder reads the encoder.

        At 6 layers and layer dropout of 0.2 that is 0.2^6, one in 15,625: refused at the first.
        """
        dropped = getattr(getattr(unwrapped(model), "decoder", None), "decoder_layerdrop", 0)
        penalised = self.penalty.weight > 0 and "enc-self" in self.penalty.attentions
        if penalised and dropped and finds_unused(model):
            raise SystemExit(
                "--disagreement-attention enc-self and --decoder-layerdrop with "
                "--find-unused-parameters: torch calls the encoder unused where every layer of the "
                "decoder is dropped, and fails; add --ddp-backend legacy_ddp"
            )

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the metrics summed over workers and accumulated batches."""
        super().reduce_metrics(logging_outputs)
        log_disagreement(logging_outputs)

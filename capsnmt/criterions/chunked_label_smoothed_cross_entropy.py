"""fairseq's label-smoothed cross-entropy, computed one chunk of tokens at a time.

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

import inspect
import logging
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.distributed import FullyShardedDataParallel
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from torch import Tensor, nn

from capsnmt.checkpoints.compatible import resumes_from
from capsnmt.cli import ConfigurationError
from capsnmt.criterions.chunked_cross_entropy import chunked_cross_entropy
from capsnmt.modules.autocast import autocast_of

logger = logging.getLogger(__name__)

NAME = "chunked_label_smoothed_cross_entropy"
# **D**: half the memory of 512 tokens, at up to a seventh more time of this loss (docs/loss.md).
CHUNK_TOKENS = 256


@dataclass
class ChunkedLabelSmoothedCrossEntropyCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of fairseq's criterion, and the size of the chunks."""

    loss_chunk_tokens: int = field(
        default=CHUNK_TOKENS,
        metadata={"help": "target tokens whose scores of all words are in memory at once; 0: all"},
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside fairseq's wrappers for distributed training."""
    while isinstance(getattr(model, "module", None), nn.Module):
        model = model.module
    return model


def obstacle(model: nn.Module) -> Optional[str]:
    """Return why the loss of a model cannot be computed in chunks, or None.

    The loss needs the features of the decoder and a projection that is one matrix.
    """
    inner = unwrapped(model)
    decoder = getattr(inner, "decoder", None)
    if isinstance(model, FullyShardedDataParallel):
        return "its parameters are sharded"
    if (
        not isinstance(inner, TransformerModelBase)
        or "features_only" not in inspect.signature(type(inner).forward).parameters
        or not isinstance(decoder, TransformerDecoderBase)
        or type(decoder).output_layer is not TransformerDecoderBase.output_layer
    ):
        return f"{type(inner).__name__} is not fairseq's Transformer or a model of capsnmt"
    projection = decoder.output_projection
    if decoder.adaptive_softmax is not None:
        return "it has an adaptive softmax"
    if type(projection) is not nn.Linear or projection.bias is not None:
        return "its output projection is not a plain matrix"
    finds_unused = getattr(getattr(model, "module", None), "find_unused_parameters", False)
    if finds_unused and projection.weight is not decoder.embed_tokens.weight:
        # torch would mark the projection, which the forward pass does not use, as unused
        return "--find-unused-parameters needs --share-decoder-input-output-embed"
    return None


class _FeaturesOf:
    """A model in the place where fairseq's criterion calls one: it returns decoder features."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.accuracy: Optional[Tuple[Tensor, Tensor]] = None

    def __call__(self, **net_input: Any) -> Any:
        return self.model(**net_input, features_only=True)


@resumes_from(LabelSmoothedCrossEntropyCriterion)
@register_criterion(
    "chunked_label_smoothed_cross_entropy",
    dataclass=ChunkedLabelSmoothedCrossEntropyCriterionConfig,
)
class ChunkedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's criterion: same values, gradients, logs and flags, with less memory and time.

    See :mod:`capsnmt.criterions.chunked_cross_entropy`. Where chunks are impossible
    (:func:`obstacle`) and for unreduced losses, fairseq's own code runs; a log message gives the
    reason.

    Raises:
        ConfigurationError: the size of the chunks is negative.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        loss_chunk_tokens: int = CHUNK_TOKENS,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if loss_chunk_tokens < 0:
            raise ConfigurationError(
                f"--loss-chunk-tokens: {loss_chunk_tokens}: give a number of tokens, or 0 for all"
            )
        self.loss_chunk_tokens = loss_chunk_tokens
        self.reported: Optional[str] = None

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """Return the loss, the sample size and the logging output, as all fairseq criterions.

        Args:
            model: the translation model.
            sample: a batch of fairseq's translation task.
            reduce: sum the loss over the tokens.
        """
        if not reduce or self.loss_chunk_tokens == 0:
            return super().forward(model, sample, reduce=reduce)
        reason = obstacle(model)
        if reason is not None:
            if reason != self.reported:
                logger.warning(f"the loss of this model is not computed in chunks: {reason}")
                self.reported = reason
            return super().forward(model, sample, reduce=reduce)
        return super().forward(_FeaturesOf(model), sample, reduce=reduce)

    def compute_loss(
        self, model: Any, net_output: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor]:
        """Return the loss and the negative log-likelihood."""
        if not isinstance(model, _FeaturesOf):
            return super().compute_loss(model, net_output, sample, reduce=reduce)
        features = net_output[0][:, self.ignore_prefix_size :]
        target = sample["target"][:, self.ignore_prefix_size :]
        decoder = unwrapped(model.model).decoder
        with autocast_of(decoder, getattr(decoder, "autocast", "none")):  # fairseq's has none
            loss, nll, correct = chunked_cross_entropy(
                features,
                decoder.output_projection.weight,
                target,
                self.eps,
                self.padding_idx,
                self.loss_chunk_tokens,
                count_correct=self.report_accuracy,
            )
        model.accuracy = correct, target.ne(self.padding_idx).sum()
        return loss, nll

    def compute_accuracy(
        self, model: Any, net_output: Any, sample: Dict[str, Any]
    ) -> Tuple[Tensor, Tensor]:
        """Return the numbers of correct tokens and of all tokens."""
        if not isinstance(model, _FeaturesOf):
            return super().compute_accuracy(model, net_output, sample)
        assert model.accuracy is not None, "the loss is computed first"
        return model.accuracy

"""fairseq's label-smoothed cross-entropy, computed one chunk of tokens at a time."""

import logging
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.distributed import FullyShardedDataParallel
from fairseq.models.bart import BARTModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from torch import Tensor, nn

from capsnmt.criterions.chunked_cross_entropy import chunked_cross_entropy
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.precision import autocast_of
from capsnmt.models.surface_fusion import SurfaceFusionDecoder
from capsnmt.models.switches import check, switch
from capsnmt.modules.overrides import PROBABILITIES, hooked, inherits
from capsnmt.routing.tracing import is_transformed

logger = logging.getLogger(__name__)

NAME = "chunked_label_smoothed_cross_entropy"
# the methods of fairseq's criterion that this loss replaces
LOSS = ("compute_loss", "get_lprobs_and_target", "compute_accuracy")
# whose forward pass with features_only leaves out the output projection and nothing else
MODELS = (TransformerModelBase, BARTModel)
DECODERS = (TransformerDecoderBase, TransformerDecoder)
# whose methods make the words of the features: one distribution, or two with weights
WORDS = (TransformerDecoderBase, SurfaceFusionDecoder)


def chunk_tokens(device: torch.device) -> int:
    """Return the tokens of a chunk unless ``--loss-chunk-tokens`` says it.

    **D**: 256 on a CPU, for half the memory of 512 at up to a seventh more time of this loss. A GPU
    launches kernels for each chunk: at 8,192 tokens, 1,265 more than fairseq's loss for chunks of
    256, and 142 for chunks of 2,048.
    """
    return 256 if device.type == "cpu" else 2048


@dataclass
class ChunkedLabelSmoothedCrossEntropyCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of fairseq's criterion, and the size of the chunks."""

    loss_chunk_tokens: Optional[int] = switch(
        None,
        "target tokens whose scores of all words are in memory at once (default: 256 on a CPU, "
        "2,048 on a GPU)",
        least=0,
        note="0: all",
    )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside fairseq's wrappers for distributed training."""
    while isinstance(getattr(model, "module", None), nn.Module):
        model = model.module
    return model


def finds_unused(model: nn.Module) -> bool:
    """Return whether torch looks for parameters that the output of the forward pass does not use.

    It takes their gradients for 0 at once, and a loss that uses them would give them a second one.
    """
    return bool(getattr(getattr(model, "module", None), "find_unused_parameters", False))


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
        or not inherits(inner, TransformerModelBase, "get_targets", *PROBABILITIES)
        or not any(inherits(inner, base, "forward") for base in MODELS)
    ):
        return f"{type(inner).__name__} is not fairseq's Transformer or a model of capsnmt"
    if (
        not isinstance(decoder, TransformerDecoderBase)
        or not any(inherits(decoder, base, "output_layer", *PROBABILITIES) for base in WORDS)
        or not any(inherits(decoder, base, "forward") for base in DECODERS)
    ):
        return f"{type(decoder).__name__} is not the decoder of fairseq's Transformer or of capsnmt"
    projection = decoder.output_projection
    if decoder.adaptive_softmax is not None:
        return "it has an adaptive softmax"
    plain = type(projection) is nn.Linear and inherits(projection, nn.Linear, "forward")
    if not plain or projection.bias is not None or hooked(projection):
        return "its output projection is not a plain matrix"
    if any(map(hooked, (model, inner, decoder))):
        return "a hook waits for the output of the model or its decoder"
    if finds_unused(model) and projection.weight is not decoder.embed_tokens.weight:
        # the forward pass does not use the projection
        return "--find-unused-parameters needs --share-decoder-input-output-embed"
    return None


@register_criterion(NAME, dataclass=ChunkedLabelSmoothedCrossEntropyCriterionConfig)
class ChunkedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's criterion: same values, gradients, logs and flags, with less memory and time.

    See :mod:`capsnmt.criterions.chunked_cross_entropy`. Where chunks are impossible
    (:func:`obstacle`), for a subclass that overrides one of :data:`LOSS` and for unreduced losses,
    fairseq's own code runs; a log message gives the reason.
    """

    def __init__(self, task: Any, cfg: ChunkedLabelSmoothedCrossEntropyCriterionConfig) -> None:
        settings = cfg.label_smoothing, cfg.ignore_prefix_size, cfg.report_accuracy
        super().__init__(task, cfg.sentence_avg, *settings)
        check(cfg, ChunkedLabelSmoothedCrossEntropyCriterionConfig)
        self.loss_chunk_tokens = cfg.loss_chunk_tokens
        self.reported: Optional[str] = None

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """Return the loss, the sample size and the logging output, as all fairseq criterions."""
        if not reduce or self.loss_chunk_tokens == 0 or is_transformed():
            return super().forward(model, sample, reduce=reduce)
        reason = obstacle(model)
        if not inherits(self, LabelSmoothedCrossEntropyCriterion, *LOSS):
            reason = f"{type(self).__name__} overrides one of {', '.join(LOSS)}"
        decoder: Any = getattr(unwrapped(model), "decoder", None)
        fuses = isinstance(decoder, SurfaceFusionDecoder)
        if self.report_accuracy and fuses:
            reason = "--report-accuracy reads the fused distributions"
        if reason is not None:
            if reason != self.reported:
                logger.warning(f"the loss of this model is not computed in chunks: {reason}")
                self.reported = reason
            return super().forward(model, sample, reduce=reduce)
        features, _ = model(**sample["net_input"], features_only=True)
        kept = slice(self.ignore_prefix_size, None)
        target, features = sample["target"][:, kept], features[:, kept]
        parts = decoder.parts(features) if fuses else [(1.0, features)]
        tokens = self.loss_chunk_tokens or chunk_tokens(features.device)
        settings = decoder.output_projection.weight, target, self.eps, self.padding_idx, tokens
        with autocast_of(decoder, getattr(decoder, "autocast", "none")):  # fairseq's has none
            losses = [
                chunked_cross_entropy(part, *settings, self.report_accuracy) for _, part in parts
            ]
        loss, nll = losses[0].loss, losses[0].nll
        if len(parts) > 1:
            weights = [weight for weight, _ in parts]
            loss = sum(weight * part.loss for weight, part in zip(weights, losses))
            nll = sum(weight * part.nll for weight, part in zip(weights, losses))
        sentences = sample["target"].size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll.data,
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output["n_correct"] = utils.item(losses[0].correct)
            logging_output["total"] = utils.item(target.ne(self.padding_idx).sum())
        return loss, sample_size, logging_output


# Runs of this class and of fairseq's resume from each other: see capsnmt/fast/adam.py.
ChunkedLabelSmoothedCrossEntropyCriterion.__name__ = LabelSmoothedCrossEntropyCriterion.__name__

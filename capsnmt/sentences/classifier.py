"""A classifier of sentences or sentence pairs over the translation model's encoder; its presets."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel, register_model, register_model_architecture
from fairseq.models.transformer import Linear, TransformerConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_getattr, safe_hasattr
from torch import Tensor, nn

from capsnmt.checkpoints.initialise import forget_starts, initialise_from, resumes
from capsnmt.checkpoints.load import in_group
from capsnmt.models.config import changed
from capsnmt.models.encoder import TransformerEncoder
from capsnmt.models.switches import check, defaults_of, refuse_idle, refuse_together, switch
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.models.validation import complete, validate
from capsnmt.sentences.probed_encoder import adopt_encoder, load_encoder, refuse_decoder

Preset = Dict[str, Any]

MODEL = "sentence_classifier"
POOLINGS = ("mean", "queries")
OF_TRAINING = ("drop_head", "compile", "disagreement")
FROZEN = [{"freeze_encoder": (True,)}], OF_TRAINING, "a frozen encoder is not trained"


@dataclass
class SentenceClassifierConfig(FairseqDataclass):
    """The switches of a sentence classifier, in addition to those of its encoder."""

    pooling: str = switch("mean", "pooling of a sentence into one vector: {}", choices=POOLINGS)
    pooling_queries: int = switch(
        2, "k, the number of trainable queries", least=1, needs=[{"pooling": ("queries",)}]
    )
    classifier_layers: int = switch(
        2, "linear maps of the classifier, separated by relu and dropout", least=1
    )
    freeze_encoder: bool = switch(False, "train only the pooling and the classifier")
    probe_checkpoint: Optional[str] = switch(
        None,
        "checkpoint of a translation model: use its encoder, settings and parameters, and freeze "
        "it; give its dictionary by --dictionary",
    )


class MeanPooling(nn.Module):
    r"""The mean of the encoder's outputs (Li et al. 2019, section 5.1; Li et al. 2021, 4.2.2).

    .. math:: s = \frac{1}{L} \sum_l h_l

    **D**: l runs over all positions that the encoder sees, including the end-of-sentence symbol,
    and never over padding.

    >>> states, padding = torch.tensor([[[2.0]], [[4.0]]]), torch.tensor([[False, True]])
    >>> MeanPooling(1)(states, padding)
    tensor([[2.]])
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.output_dim = embed_dim

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Pool ``states [L, B, d]`` to ``[B, d]``; ``padding [B, L]`` is true at padding."""
        real = ~padding.t().unsqueeze(-1)
        precise = torch.promote_types(states.dtype, torch.float32)
        total = states.masked_fill(~real, 0).sum(0, dtype=precise)
        return (total / real.sum(0)).type_as(states)


class QueryPooling(nn.Module):
    r"""Attention of k trainable queries to the sentence (Li et al. 2021, 4.3.2).

    .. math:: s = [s_1; ..; s_k], \quad s_j = \sum_l \mathrm{softmax}_l(q_j \cdot h_l / \sqrt d) h_l

    **D**: the paper names no projections, so the states themselves are the keys and values.

    Args:
        embed_dim: d.
        num_queries: k.
    """

    def __init__(self, embed_dim: int, num_queries: int) -> None:
        super().__init__()
        self.output_dim = num_queries * embed_dim
        self.queries = nn.Parameter(torch.empty(num_queries, embed_dim))
        nn.init.normal_(self.queries)

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Pool ``states [L, B, d]`` to ``[B, k d]``; ``padding [B, L]`` is true at padding."""
        precise = torch.promote_types(states.dtype, torch.float32)
        scores = torch.einsum("lbd,kd->bkl", states, self.queries) * states.size(-1) ** -0.5
        scores = scores.masked_fill(padding.unsqueeze(1), -torch.inf)
        weights = torch.softmax(scores, dim=-1, dtype=precise).type_as(states)
        return torch.einsum("bkl,lbd->bkd", weights, states).flatten(1)


def multilayer_perceptron(widths: List[int], dropout: float) -> nn.Sequential:
    """Build linear maps between the widths, separated by relu and dropout."""
    layers: List[nn.Module] = []
    for width, following in zip(widths, widths[1:]):
        layers += [nn.ReLU(), nn.Dropout(dropout)] if layers else []
        layers.append(Linear(width, following))
    return nn.Sequential(*layers)


@register_model(MODEL)
class SentenceClassifier(BaseFairseqModel):
    """Encoder, pooling, multilayer perceptron: the probes of Li et al. 2019 and 2021.

    The sentences of an example share the encoder and the pooling. Their vectors are concatenated in
    order (Li et al. 2021, section 4.3.2). The encoder is that of ``capsnmt_transformer``, with the
    same parameter names and any of its mechanisms.

    **D**: the papers do not say what separates the classifier's linear maps: relu and the model's
    dropout, at the encoder's width.
    """

    def __init__(
        self,
        encoder: TransformerEncoder,
        pooling: nn.Module,
        classifier: nn.Module,
        num_sentences: int,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.classifier = classifier
        self.num_sentences = num_sentences
        self.frozen = frozen
        if frozen:
            encoder.requires_grad_(False)

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the flags of the translation model and those of the classifier."""
        CapsnmtTransformer.add_args(parser)
        gen_parser_from_dataclass(parser, SentenceClassifierConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "SentenceClassifier":
        """Build the classifier for a ``ClassificationTask``."""
        cfg = TransformerConfig.from_namespace(Namespace(**in_group(args)))
        dictionary, width = task.source_dictionary, cfg.encoder.embed_dim
        embedding = CapsnmtTransformer.build_embedding(
            cfg, dictionary, width, cfg.encoder.embed_path
        )
        pooling: nn.Module = MeanPooling(width)
        if args.pooling == "queries":
            pooling = QueryPooling(width, args.pooling_queries)
        widths = [task.num_sentences * pooling.output_dim]
        widths += [width] * (args.classifier_layers - 1)
        model = cls(
            TransformerEncoder(cfg, dictionary, embedding),
            pooling,
            multilayer_perceptron([*widths, task.num_classes], cfg.dropout),
            task.num_sentences,
            args.freeze_encoder,
        )
        if args.init_from and not resumes(args):
            initialise_from(model, args, task, changed)
        if args.probe_checkpoint:
            given = Path(getattr(task.cfg, "dictionary", None) or "")
            load_encoder(model.encoder, args.probe_checkpoint, given)
        forget_starts(args)
        return model

    def train(self, mode: bool = True) -> "SentenceClassifier":
        """Set the training mode; a frozen encoder stays in evaluation mode, without dropout."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, src_tokens: Tensor, src_lengths: Tensor) -> Tensor:
        """Return logits, ``[B, classes]``.

        Args:
            src_tokens: ``[n B, L]``, padded on either side: the first sentences of all examples,
                then the second ones, for n sentences per example.
            src_lengths: their lengths, ``[n B]``.
        """
        states = self.encoder(src_tokens, src_lengths)["encoder_out"][0]
        padding = src_tokens.eq(self.encoder.padding_idx)
        vectors = self.pooling(states, padding).unflatten(0, (self.num_sentences, -1))
        return self.classifier(vectors.transpose(0, 1).flatten(1))

    def max_positions(self) -> int:
        """Return the maximum sentence length."""
        return self.encoder.max_positions()


SIZE = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")  # of the encoder
# Li et al. 2021, section 4.3.2: two queries, a classifier of three layers, dropout 0.2.
# **D**: it does not give the width of the feed-forward network and the number of heads: four times
# the model's width, and 8, as in Transformer-Base.
INFERENCE = {"dropout": 0.2, "pooling": "queries", "pooling_queries": 2, "classifier_layers": 3}
# Li et al. 2019, section 5.1: 3 layers of Transformer-Base; Li et al. 2021, section 4.2.2: 6.
SENTENCE_PRESETS: Dict[str, Preset] = {
    name: {**{f"encoder_{key}": value for key, value in zip(SIZE, size)}, **others}
    for name, size, others in (
        ("probing_transformer", (3, 512, 2048, 8), {}),
        ("probing_transformer_deep", (6, 512, 2048, 8), {}),
        ("probing_transformer_tiny", (3, 128, 256, 4), {}),
        ("logical_inference_transformer", (2, 256, 1024, 8), INFERENCE),
        ("logical_inference_transformer_tiny", (2, 64, 128, 4), INFERENCE),
    )
}


def sentence_architecture(name: str) -> Callable[[Namespace], None]:
    """Return the function that completes and checks the arguments of one architecture."""

    def configure(args: Namespace) -> None:
        preset = {**defaults_of(SentenceClassifierConfig), **SENTENCE_PRESETS[name]}
        # without a decoder, layers are aggregated in the encoder only
        mechanisms: Preset = {"layer_aggregation_side": "encoder"}
        if safe_getattr(args, "probe_checkpoint"):
            mechanisms = adopt_encoder(args)
        for option, value in preset.items():
            if not safe_hasattr(args, option):
                setattr(args, option, value)
        refuse_decoder(args)
        if safe_getattr(args, "encoder_layers_to_keep"):
            refuse_idle(args, "encoder_layers_to_keep", "a sentence classifier is not pruned")
        base_architecture(args)
        complete(args, mechanisms)
        check(args, SentenceClassifierConfig)
        refuse_together(args, [FROZEN])
        validate(args, ["encoder"])

    return configure


for _name in SENTENCE_PRESETS:
    register_model_architecture(MODEL, _name)(sentence_architecture(_name))

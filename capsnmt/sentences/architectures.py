"""The named sentence classifiers: presets for the papers' settings."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Callable, Dict

from fairseq.models import ARCH_MODEL_REGISTRY, register_model_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_getattr, safe_hasattr

from capsnmt.models.completion import complete
from capsnmt.models.validation import validate
from capsnmt.sentences.classifier import MODEL
from capsnmt.sentences.probed_encoder import adopt_encoder
from capsnmt.sentences.validation import complete_classifier, refuse_decoder

Preset = Dict[str, Any]


def _encoder(layers: int, width: int, ffn: int, heads: int, **others: Any) -> Preset:
    return {
        "encoder_layers": layers,
        "encoder_embed_dim": width,
        "encoder_ffn_embed_dim": ffn,
        "encoder_attention_heads": heads,
        **others,
    }


# Li et al. 2021, section 4.3.2: two queries, a classifier of three layers, dropout 0.2.
# **D**: it does not give the width of the feed-forward network and the number of heads: four times
# the model's width, and 8, as in Transformer-Base.
LOGICAL_INFERENCE = {
    "dropout": 0.2,
    "pooling": "queries",
    "pooling_queries": 2,
    "classifier_layers": 3,
}
# Li et al. 2019, section 5.1: 3 layers of Transformer-Base; Li et al. 2021, section 4.2.2: 6.
SENTENCE_PRESETS: Dict[str, Preset] = {
    "probing_transformer": _encoder(3, 512, 2048, 8),
    "probing_transformer_deep": _encoder(6, 512, 2048, 8),
    "probing_transformer_tiny": _encoder(3, 128, 256, 4),
    "logical_inference_transformer": _encoder(2, 256, 1024, 8, **LOGICAL_INFERENCE),
    "logical_inference_transformer_tiny": _encoder(2, 64, 128, 4, **LOGICAL_INFERENCE),
}


def sentence_architecture(name: str) -> Callable[[Namespace], None]:
    """Return the function that completes and checks the arguments of one architecture."""

    def configure(args: Namespace) -> None:
        preset = SENTENCE_PRESETS[name]
        # without a decoder, layers are aggregated in the encoder only
        mechanisms: Preset = {"layer_aggregation_side": "encoder"}
        if safe_getattr(args, "probe_checkpoint"):
            mechanisms = adopt_encoder(args)
        for option, value in preset.items():
            if not safe_hasattr(args, option):
                setattr(args, option, value)
        refuse_decoder(args)
        base_architecture(args)
        complete(args, mechanisms)
        complete_classifier(args, preset)
        validate(args)

    return configure


def register_sentence_architectures() -> None:
    """Register every preset, once."""
    for name in SENTENCE_PRESETS:
        if name not in ARCH_MODEL_REGISTRY:
            register_model_architecture(MODEL, name)(sentence_architecture(name))


register_sentence_architectures()

"""The composable Transformer, the classifier over its encoder, and their architectures."""

from capsnmt.models.architectures import PRESETS, SIZES, register_architectures
from capsnmt.models.probing_architectures import SENTENCE_PRESETS
from capsnmt.models.sentence_encoder import SentenceClassifier
from capsnmt.models.transformer import CapsnmtTransformer

__all__ = [
    "PRESETS",
    "SENTENCE_PRESETS",
    "SIZES",
    "CapsnmtTransformer",
    "SentenceClassifier",
    "register_architectures",
]

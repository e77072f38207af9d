"""The composable Transformer and its architectures."""

import capsnmt.plugin  # noqa: F401  fairseq imports this folder: register everything
from capsnmt.models.architectures import PRESETS, SIZES, register_architectures
from capsnmt.models.transformer import CapsnmtTransformer

__all__ = [
    "PRESETS",
    "SIZES",
    "CapsnmtTransformer",
    "register_architectures",
]

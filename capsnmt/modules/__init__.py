"""The mechanisms, one ``nn.Module`` a file, for any model in torch; no fairseq is needed.

>>> import torch
>>> output = HeadRouting(512, num_heads=8)  # EM routing in place of the output projection W^O
>>> output(torch.randn(7, 2, 512)).shape  # concatenated heads [L, B, d]
torch.Size([7, 2, 512])
>>> top = LayerRouting(512, num_layers=6, routing="em-routing")
>>> top([torch.randn(7, 2, 512) for _ in range(6)]).shape  # the layers' outputs
torch.Size([7, 2, 512])
"""

from .attention import Attention
from .capsule_attention import CapsuleAttention
from .disagreement import record_disagreement
from .drop_head import DropHead
from .head_aggregation import HeadComposition, HeadGate, HeadMixing, HeadRouting
from .layer_aggregation import TransparentMixture, layer_aggregation, layer_connection
from .layer_aggregation.attention import AttentionResiduals, DepthAttention
from .layer_aggregation.combination import (
    DynamicCombination,
    IterativeCombination,
    LinearCombination,
)
from .layer_aggregation.connection import DLCL, DepthWeightedAverage
from .layer_aggregation.routing import LayerRouting
from .multi_layer_attention import MultiLayerAttention
from .surface_fusion import SurfaceAttention

__all__ = [
    "DLCL",
    "Attention",
    "AttentionResiduals",
    "CapsuleAttention",
    "DepthAttention",
    "DepthWeightedAverage",
    "DropHead",
    "DynamicCombination",
    "HeadComposition",
    "HeadGate",
    "HeadMixing",
    "HeadRouting",
    "IterativeCombination",
    "LayerRouting",
    "LinearCombination",
    "MultiLayerAttention",
    "SurfaceAttention",
    "TransparentMixture",
    "layer_aggregation",
    "layer_connection",
    "record_disagreement",
]

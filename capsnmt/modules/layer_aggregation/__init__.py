"""Aggregation of a stack's layers, after the stack or in the input of every layer."""

from typing import Any

from capsnmt.modules.algorithms import OF_LAYERS

from .attention import AttentionResiduals, DepthAttention
from .base import LayerAggregation
from .combination import DynamicCombination, IterativeCombination, LinearCombination
from .connection import DLCL, OVERFLOW_FP16, DepthWeightedAverage, LayerConnection
from .routing import LayerRouting
from .transparent import TransparentMixture

__all__ = [
    "CONNECTIONS",
    "LAYER_AGGREGATIONS",
    "OVERFLOW_FP16",
    "POSITION_WISE",
    "AttentionResiduals",
    "LayerAggregation",
    "LayerConnection",
    "TransparentMixture",
    "layer_aggregation",
    "layer_connection",
]

POSITION_WISE = ("linear", "iterative", "dynamic", "attention", *OF_LAYERS)
CONNECTIONS = ("dlcl", "dense", "attention-residuals")
LAYER_AGGREGATIONS = (
    *("none", "linear", "iterative", "transparent", "dynamic", "attention"),
    *CONNECTIONS,
    *OF_LAYERS,
)


def layer_aggregation(
    mode: str, embed_dim: int, num_layers: int, ffn_dim: int, **routing: Any
) -> LayerAggregation:
    """Build the position-wise aggregation of one stack by its name in ``--layer-aggregation``.

    Args:
        mode: one of ``POSITION_WISE``.
        embed_dim: d.
        num_layers: L.
        ffn_dim: hidden width of ``iterative`` and ``dynamic``.
        routing: further arguments of :class:`LayerRouting`, such as ``num_capsules``; no other
            aggregation reads them.

    Raises:
        ValueError: ``mode`` is not position-wise, or its class refuses a setting.
    """
    if mode == "linear":
        return LinearCombination(embed_dim, num_layers)
    if mode == "iterative":
        return IterativeCombination(embed_dim, num_layers, ffn_dim)
    if mode == "dynamic":
        return DynamicCombination(embed_dim, num_layers, ffn_dim)
    if mode == "attention":
        return DepthAttention(embed_dim, num_layers)
    if mode in OF_LAYERS:
        return LayerRouting(embed_dim, num_layers, mode, **routing)
    raise ValueError(
        f"layer aggregation {mode!r} is not position-wise; choose from {', '.join(POSITION_WISE)}"
    )


def layer_connection(
    mode: str,
    embed_dim: int,
    num_layers: int,
    normalize_before: bool,
    sublayers: int = 2,
    block: int = 1,
) -> LayerConnection:
    """Build the connection of one stack by its name in ``--layer-aggregation``.

    Args:
        mode: one of ``CONNECTIONS``.
        embed_dim: d.
        num_layers: L.
        normalize_before: whether the stack is pre-norm (``dlcl`` only).
        sublayers: the sublayers of a layer (``attention-residuals`` only).
        block: S, the sublayers of a block (``attention-residuals`` only).

    Raises:
        ValueError: ``mode`` is not a connection, or its class refuses a setting.
    """
    if mode == "dlcl":
        return DLCL(embed_dim, num_layers, normalize_before)
    if mode == "dense":
        return DepthWeightedAverage(num_layers)
    if mode == "attention-residuals":
        return AttentionResiduals(embed_dim, num_layers, sublayers, block)
    raise ValueError(
        f"layer aggregation {mode!r} is not a connection; choose from {', '.join(CONNECTIONS)}"
    )

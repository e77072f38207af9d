"""What aggregates or connects the layers of a stack, chosen by the switches."""

from __future__ import annotations

from typing import Any, Optional

import torch.nn as nn

from capsnmt.models.selection import aggregates_layers
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    LayerConnection,
    layer_aggregation,
    layer_connection,
)


def stack_aggregation(cfg: Any, side: str) -> Optional[nn.Module]:
    """Build the position-wise aggregation of the encoder's or decoder's layers, if any."""
    if not aggregates_layers(cfg, side, POSITION_WISE):
        return None
    stack = getattr(cfg, side)
    return layer_aggregation(
        cfg.layer_aggregation,
        stack.embed_dim,
        stack.layers,
        stack.ffn_embed_dim,
        num_capsules=cfg.layer_capsules,
        own=cfg.layer_capsule_input == "own",
        iterations=cfg.routing_iterations,
        backend=cfg.routing_backend,
    )


def stack_connection(cfg: Any, side: str) -> Optional[LayerConnection]:
    """Build what connects the encoder's or decoder's layers, if anything."""
    if not aggregates_layers(cfg, side, CONNECTIONS):
        return None
    stack = getattr(cfg, side)
    return layer_connection(
        cfg.layer_aggregation, stack.embed_dim, stack.layers, stack.normalize_before
    )

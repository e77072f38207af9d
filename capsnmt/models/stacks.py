"""What encoder and decoder share: a step of the loop, and what aggregates or connects layers."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
import torch.nn as nn
from torch import Tensor

from capsnmt.cpu import is_traced
from capsnmt.models.selection import aggregates_layers, sublayers
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    LayerConnection,
    layer_aggregation,
    layer_connection,
)


def kept_layers(layers: int, p: float, training: bool) -> List[bool]:
    """Draw which layers of a pass run (Fan et al. 2020): a layer is dropped with probability p.

    The numbers are drawn as the host draws them.
    """
    if p == 0.0 or not training:
        return [True] * layers
    kept: List[bool] = (torch.empty(layers).uniform_() > p).tolist()
    return kept


def reads_padding(padding: Tensor) -> bool:
    """Return whether attention needs the mask ``padding``: it has any, or a trace serves any batch.

    A GPU has to wait for the answer: ask once for a stack, not before every layer.
    """
    return is_traced() or bool(padding.any())


def run_layer(
    layer: nn.Module,
    kept: bool,
    connection: Optional[LayerConnection],
    below: List[Tensor],
    x: Tensor,
    *inputs: Any,
    **settings: Any,
) -> Tuple[Any, ...]:
    """Run a layer on x, unless it is dropped; return what the next one reads, and what else it has.

    A dropped layer (``--encoder-layerdrop``, ``--decoder-layerdrop``) is the identity.

    Args:
        below: the states below the layer, which the connection reads; those of the layer are added.
        x: ``[T, B, d]``.
    """
    if not kept:
        return (x if connection is None else connection.skip(x, below),)
    if connection is None or not connection.within_layers:
        results = layer(x, *inputs, **settings)
    else:
        settings.update(connection=connection, below=tuple(below))
        results, states = layer(x, *inputs, **settings)
        below[:] = states
    x, *others = results if isinstance(results, tuple) else (results,)
    if connection is not None and not connection.within_layers:
        x = connection.follow(x, below)
    return (x, *others)


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
        cfg.layer_aggregation,
        stack.embed_dim,
        stack.layers,
        stack.normalize_before,
        sublayers=sublayers(cfg, side),
        block=cfg.attention_residuals_block,
    )

"""What encoder and decoder share: a step of the loop, and what aggregates or connects layers."""

import itertools
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from capsnmt.models.attention import Hosted, RetainedDropout
from capsnmt.models.compilation import make_compilable
from capsnmt.models.layers import HostLayer
from capsnmt.models.selection import aggregates_layers, sublayers
from capsnmt.modules.layer_aggregation import (
    CONNECTIONS,
    POSITION_WISE,
    LayerAggregation,
    LayerConnection,
    layer_aggregation,
    layer_connection,
)
from capsnmt.modules.overrides import overridden
from capsnmt.routing.tracing import is_traced


def replace_dropout(module: nn.Module) -> None:
    """Replace fairseq's dropout by :class:`.RetainedDropout` everywhere in a module."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if type(child) is FairseqDropout:
                setattr(parent, name, RetainedDropout(child.p, child.module_name))


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


def attention_masks(encoded: Dict[str, List[Tensor]]) -> List[Tensor]:
    """Return what hides padding of an encoding from attention, nothing if there is none.

    It is the mask that our encoder hands over for the padding that it names last; of any other
    padding, such as of another's encoder or with more that is hidden, the padding itself.
    """
    padding, masks = encoded["encoder_padding_mask"], encoded.get("attention_mask", [])
    if not (masks and padding and masks[-1] is padding[0]):
        return padding
    # in inference mode nothing tells whether it was written to
    unwritten = is_traced() or not (padding[0].is_inference() or padding[0]._version)
    return masks[:-1] if unwritten else padding


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


class Stack(nn.Module):
    """What encoder and decoder add to those of the host: the connection and aggregation of layers.

    Attributes:
        side: ``encoder`` or ``decoder``.
        numbers: the numbers of the layers that are built, from 1 at the bottom.
        layer_aggregation: aggregates the layers position by position; None: the top layer counts.
        connection: connects the layers; None: each reads the one below it.
    """

    side: str
    layer_norm: Optional[nn.Module]

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers
        self.autocast: str = cfg.autocast
        self.layer_aggregation: Optional[LayerAggregation] = None
        self.connection: Optional[LayerConnection] = None
        stack = getattr(cfg, self.side)
        if aggregates_layers(cfg, self.side, POSITION_WISE):
            self.layer_aggregation = layer_aggregation(
                cfg.layer_aggregation,
                stack.embed_dim,
                stack.layers,
                stack.ffn_embed_dim,
                num_capsules=cfg.layer_capsules,
                own=cfg.layer_capsule_input == "own",
                iterations=cfg.routing_iterations,
                backend=cfg.routing_backend,
                coefficients=cfg.routing_coefficients,
            )
        elif aggregates_layers(cfg, self.side, CONNECTIONS):
            self.connection = layer_connection(
                cfg.layer_aggregation,
                stack.embed_dim,
                stack.layers,
                stack.normalize_before,
                sublayers=sublayers(cfg, self.side),
                block=cfg.attention_residuals_block,
            )
        self.compiles: bool = cfg.compile
        if self.compiles:
            make_compilable(self)
        # with layer dropout, iteration of the host's list leaves layers out
        self.layers: nn.ModuleList = nn.ModuleList(self.layers.children())
        replace_dropout(self)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        """Upgrade as the host, unless the state only lacks the version of this stack.

        The host takes every stack without one for one of 2018, and removes the last LayerNorm of
        the model: also where the state has some of the parameters, or parameters alone.
        """
        if not any(f"{name}.layers." in key and ".layer_norms." in key for key in state_dict):
            state_dict.setdefault(f"{name}.version", self.version)
        super().upgrade_state_dict_named(state_dict, name)

    def has_own_layers(self) -> bool:
        """Return whether a user's layers or attentions, or hooks of them, read their inputs."""
        parts: List[Tuple[Any, type]] = [(layer, HostLayer) for layer in self.layers]
        for name in ("self_attn", "encoder_attn"):
            parts += [(getattr(layer, name, None), Hosted) for layer in self.layers]
        return any(part is not None and overridden(part, base) for part, base in parts)

    def normalise(self, states: List[Tensor]) -> List[Tensor]:
        """Return the states as they leave the stack.

        **D**: where it ends with a LayerNorm (pre-norm), that is applied to each layer's output.
        """
        if self.layer_norm is None:
            return states
        return [self.layer_norm(state) for state in states]

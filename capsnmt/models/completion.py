"""Completion of the switches from a preset: missing ones are set, those without effect refused."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterator, Tuple

from fairseq.utils import safe_hasattr

from capsnmt.cli import ConfigurationError
from capsnmt.models.config import (
    CAPSULE_INPUTS,
    MULTI_LAYER_ATTENTIONS,
    SIDES,
    HeadAggregationConfig,
    LayerAggregationConfig,
    MultiLayerAttentionConfig,
    RoutingConfig,
    defaults,
    flag,
    switches,
)
from capsnmt.models.selection import parse_attentions, parse_layers
from capsnmt.modules.autocast import AUTOCASTS
from capsnmt.modules.capsule_attention import DECODER_ROUTINGS, ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS
from capsnmt.modules.head_aggregation import ROUTINGS as ROUTED_HEADS
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS
from capsnmt.modules.layer_aggregation import ROUTINGS as ROUTED_LAYERS
from capsnmt.routing.backend import BACKENDS

CHOICES: Dict[str, Tuple[str, ...]] = {
    "head_aggregation": HEAD_AGGREGATIONS,
    "layer_aggregation": LAYER_AGGREGATIONS,
    "layer_aggregation_side": SIDES,
    "layer_capsule_input": CAPSULE_INPUTS,
    "mlmha": MULTI_LAYER_ATTENTIONS,
    "capsule_routing_encoder": ENCODER_ROUTINGS,
    "capsule_routing_decoder": DECODER_ROUTINGS,
    "routing_backend": BACKENDS,
    "autocast": AUTOCASTS,
}


def routes_heads(args: Any) -> bool:
    """Return whether heads are aggregated by routing-by-agreement."""
    return args.head_aggregation in ROUTED_HEADS


def routes_layers(args: Any) -> bool:
    """Return whether layers are aggregated by routing-by-agreement."""
    return args.layer_aggregation in ROUTED_LAYERS


def without_effect(args: Any) -> Iterator[Tuple[str, str]]:
    """Yield each switch that has no effect given the others, with the reason."""
    yield from _without_head_aggregation(args)
    yield from _without_layer_aggregation(args)
    if args.mlmha == "none":
        yield from _others(MultiLayerAttentionConfig, "mlmha", "--mlmha is none")
    for side in ("encoder", "decoder"):
        name = f"capsule_routing_{side}"
        if getattr(args, name) == "none":
            yield f"{name}_layers", f"{flag(name)} is none"
    routing = (
        routes_heads(args)
        or routes_layers(args)
        or {args.capsule_routing_encoder, args.capsule_routing_decoder} != {"none"}
    )
    if not routing:
        yield from ((name, "nothing is routed") for name in switches(RoutingConfig))


def _others(group: Any, name: str, reason: str) -> Iterator[Tuple[str, str]]:
    """Yield every switch of the group except the named one."""
    yield from ((other, reason) for other in switches(group) if other != name)


def _without_head_aggregation(args: Any) -> Iterator[Tuple[str, str]]:
    reason = f"--head-aggregation is {args.head_aggregation}"
    if args.head_aggregation == "linear":
        yield from _others(HeadAggregationConfig, "head_aggregation", reason)
        return
    if not routes_heads(args):
        yield "head_capsules", reason
        yield "head_capsule_norm", reason
    chosen = parse_attentions(args.head_aggregation_attention, "head_aggregation_attention")
    reason = f"--head-aggregation-attention is {args.head_aggregation_attention}"
    if "enc-self" not in chosen:
        yield "head_aggregation_encoder_layers", reason
    if chosen == {"enc-self"}:
        yield "head_aggregation_decoder_layers", reason


def _without_layer_aggregation(args: Any) -> Iterator[Tuple[str, str]]:
    reason = f"--layer-aggregation is {args.layer_aggregation}"
    if args.layer_aggregation == "none":
        yield from _others(LayerAggregationConfig, "layer_aggregation", reason)
    elif not routes_layers(args):
        yield "layer_capsules", reason
        yield "layer_capsule_input", reason


def complete(args: Any, preset: Dict[str, Any]) -> None:
    """Set every switch missing in ``args`` from the preset, or else to its default.

    A value of the preset that has no effect given the other switches is dropped. A switch that the
    user has set must have an effect.

    Raises:
        ConfigurationError: a switch that was set has no effect, or its value is not allowed.
    """
    given = {name for name in defaults() if safe_hasattr(args, name)}
    for name, default in defaults().items():
        if name not in given:
            setattr(args, name, _of_preset(args, name, preset) if name in preset else default)
    for name, allowed in CHOICES.items():
        require(args, name, allowed)
    if args.layer_aggregation == "transparent" and "layer_aggregation_side" not in given:
        args.layer_aggregation_side = "encoder"
    for name, reason in without_effect(args):
        value, default = getattr(args, name), defaults()[name]
        if name in given and value != default:
            raise ConfigurationError(
                f"{flag(name)} {value} has no effect because {reason}: drop it or change that"
            )
        setattr(args, name, default)


def _of_preset(args: Any, name: str, preset: Dict[str, Any]) -> Any:
    """Return a value of the preset; of a list of layers, those that the stack has.

    **D**: layers that a smaller model does not have are not an error of its user.
    """
    value = preset[name]
    if not name.endswith("_layers"):
        return value
    side = "encoder" if "encoder" in name else "decoder"
    layers = int(getattr(args, f"{side}_layers"))
    named = parse_layers(value, sys.maxsize, name) if value != "all" else frozenset()
    if all(layer <= layers for layer in named):
        return value
    return ",".join(str(layer) for layer in sorted(named) if layer <= layers) or "all"


def require(args: Any, name: str, allowed: Tuple[str, ...]) -> None:
    """Raise a ``ConfigurationError`` unless the switch has one of the allowed values."""
    value = getattr(args, name)
    if value not in allowed:
        raise ConfigurationError(f"{flag(name)}: {value!r}: choose from {', '.join(allowed)}")

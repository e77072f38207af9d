"""Which layers, attentions and stacks the switches choose."""

from typing import Any, Collection, FrozenSet, Set

from fairseq.utils import safe_getattr

from capsnmt.cli import ConfigurationError
from capsnmt.models.switches import flag, words_of

ATTENTIONS_OF = {"encoder": ("enc-self",), "decoder": ("enc-dec", "dec-self")}
ATTENTIONS = (*ATTENTIONS_OF["encoder"], *ATTENTIONS_OF["decoder"])


def parse_layers(spec: str, num_layers: int, name: str) -> FrozenSet[int]:
    """Parse a list of 1-based layers such as ``1,4-6``; layer 1 is at the bottom.

    >>> sorted(parse_layers("1,3-4", 6, "head_aggregation_encoder_layers"))
    [1, 3, 4]
    """
    spec = str(spec).strip()
    if spec == "all":
        return frozenset(range(1, num_layers + 1))
    layers: Set[int] = set()
    for part in spec.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ConfigurationError(
                f"{flag(name)} is {spec!r}, not a list of layers; give 'all' or 1-based numbers "
                f"and ranges, such as 1,2 or 4-6"
            )
        # of a range that is too long, the first layer outside is enough
        layers.update((int(first), *range(int(first), min(int(last), num_layers + 1) + 1)))
    outside = [layer for layer in sorted(layers) if not 1 <= layer <= num_layers]
    if outside:
        raise ConfigurationError(
            f"{flag(name)} names layer {outside[0]}; give layers from 1 to {num_layers}"
        )
    return frozenset(layers)


def names_layer(cfg: Any, mechanism: str, side: str, layer: int) -> bool:
    """Return whether the list of layers of a mechanism names the ``layer`` (1-based) of a side."""
    name = f"{mechanism}_{side}_layers"
    return layer in parse_layers(getattr(cfg, name), getattr(cfg, side).layers, name)


def aggregates_heads(cfg: Any, attention: str, layer: int) -> bool:
    """Return whether ``--head-aggregation`` applies to an ``attention`` of the ``layer``."""
    side = "encoder" if attention in ATTENTIONS_OF["encoder"] else "decoder"
    chosen = attention in words_of(cfg.head_aggregation_attention)
    aggregates = cfg.head_aggregation != "linear" and chosen
    return aggregates and names_layer(cfg, "head_aggregation", side, layer)


def routes_scores(cfg: Any, side: str, layer: int) -> bool:
    """Return whether the self-attention of the ``layer`` (1-based) of a side is routed."""
    routes = getattr(cfg, f"capsule_routing_{side}") != "none"
    return routes and names_layer(cfg, "capsule_routing", side, layer)


def aggregates_layers(cfg: Any, side: str, modes: Collection[str]) -> bool:
    """Return whether the layers of a side are aggregated by one of the ``modes``."""
    return cfg.layer_aggregation in modes and cfg.layer_aggregation_side in (side, "both")


def sublayers(cfg: Any, side: str) -> int:
    """Return how many sublayers a layer of the encoder or decoder has."""
    alone = safe_getattr(cfg, "no_cross_attention", False)
    return 3 if side == "decoder" and not alone else 2

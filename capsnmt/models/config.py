"""The switches of the composable Transformer, grouped by mechanism, and what each may be.

No postponed annotations here: fairseq reads the types off the dataclasses.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Dict, FrozenSet, Iterator, Optional, Set, Tuple, Type

from fairseq.dataclass import FairseqDataclass
from fairseq.utils import safe_getattr, safe_hasattr

from capsnmt.errors import ConfigurationError
from capsnmt.modules.head_aggregation import ROUTINGS
from capsnmt.routing.backend import BACKENDS

ATTENTIONS = ("enc-self", "enc-dec", "dec-self")
HEAD_AGGREGATIONS = ("linear", *ROUTINGS)


@dataclass
class RoutingConfig(FairseqDataclass):
    """What all routing operators share."""

    routing_iterations: int = field(
        default=3, metadata={"help": "T, the iterations of every routing-by-agreement"}
    )
    routing_backend: str = field(
        default="auto",
        metadata={"help": f"how routing is run: {', '.join(BACKENDS)}; same values, other speed"},
    )


@dataclass
class HeadAggregationConfig(FairseqDataclass):
    """Aggregation of attention heads (Li et al. 2019)."""

    head_aggregation: str = field(
        default="linear",
        metadata={
            "help": f"aggregation of attention heads: {', '.join(HEAD_AGGREGATIONS)}; "
            "linear is the Transformer's output projection"
        },
    )
    head_aggregation_attention: str = field(
        default="enc-self",
        metadata={"help": f"attentions it applies to: comma list of {', '.join(ATTENTIONS)}"},
    )
    head_aggregation_encoder_layers: str = field(
        default="all",
        metadata={"help": "encoder layers it applies to: all, or 1-based lists and ranges: 1,4-6"},
    )
    head_aggregation_decoder_layers: str = field(
        default="all",
        metadata={"help": "decoder layers it applies to: all, or 1-based lists and ranges: 1,4-6"},
    )
    head_capsules: int = field(
        default=0,
        metadata={"help": "N, the output capsules: a divisor of the model's width d; 0 means d"},
    )
    head_capsule_norm: bool = field(
        default=False, metadata={"help": "layer normalisation on the output capsules"}
    )


@dataclass
class InitialisationConfig(FairseqDataclass):
    """Where the parameters start from (Dou et al. 2019 started from a trained baseline)."""

    init_from: Optional[str] = field(
        default=None,
        metadata={"help": "checkpoint whose tensors of equal name and shape are loaded first"},
    )


MECHANISMS: Tuple[Type[FairseqDataclass], ...] = (
    RoutingConfig,
    HeadAggregationConfig,
    InitialisationConfig,
)


def switches(group: Type[FairseqDataclass]) -> Dict[str, Any]:
    """The switches of a mechanism, with their defaults."""
    return {
        option.name: option.default
        for option in fields(group)
        if not option.name.startswith("_")  # fairseq's own
    }


def defaults() -> Dict[str, Any]:
    """Every switch of the plugin with the value that leaves fairseq's Transformer as it is."""
    return {name: default for group in MECHANISMS for name, default in switches(group).items()}


def flag(name: str) -> str:
    """The command-line spelling of a switch.

    >>> flag("head_capsules")
    '--head-capsules'
    """
    return "--" + name.replace("_", "-")


def parse_layers(spec: str, num_layers: int, name: str) -> FrozenSet[int]:
    """The 1-based layers that a list like ``1,4-6`` names; layer 1 is at the bottom.

    >>> sorted(parse_layers("1,3-4", 6, "head_aggregation_encoder_layers"))
    [1, 3, 4]

    Raises:
        ConfigurationError: the list is not one, or names a layer outside 1..``num_layers``.
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
                f"{flag(name)}: {spec!r} is not a list of layers: give 'all' or 1-based numbers "
                f"and ranges such as 1,2 or 4-6"
            )
        layers.update(range(int(first), int(last) + 1))
    outside = [layer for layer in sorted(layers) if not 1 <= layer <= num_layers]
    if outside:
        raise ConfigurationError(
            f"{flag(name)}: there is no layer {outside[0]}: this stack has layers 1 to {num_layers}"
        )
    return frozenset(layers)


def parse_attentions(spec: str, name: str) -> FrozenSet[str]:
    """The attentions that a comma list names.

    Raises:
        ConfigurationError: a name is unknown or the list is empty.
    """
    chosen = frozenset(part.strip() for part in str(spec).split(","))
    unknown = sorted(chosen - set(ATTENTIONS))
    if unknown:
        raise ConfigurationError(
            f"{flag(name)}: {unknown[0]!r} is no attention: choose from {', '.join(ATTENTIONS)}"
        )
    return chosen


def aggregates_heads(cfg: Any, attention: str, layer: int) -> bool:
    """Whether the heads of an ``attention`` of the ``layer`` (1-based) are routed."""
    if cfg.head_aggregation == "linear":
        return False
    if attention not in parse_attentions(
        cfg.head_aggregation_attention, "head_aggregation_attention"
    ):
        return False
    side = "encoder" if attention == "enc-self" else "decoder"
    name = f"head_aggregation_{side}_layers"
    return layer in parse_layers(getattr(cfg, name), getattr(cfg, side).layers, name)


def without_effect(args: Any) -> Iterator[Tuple[str, str]]:
    """Each switch that the others leave without effect, with the reason."""
    if args.head_aggregation == "linear":
        reason = "--head-aggregation is linear"
        dependent = {**switches(HeadAggregationConfig), **switches(RoutingConfig)}
        yield from ((name, reason) for name in dependent if name != "head_aggregation")
        return
    chosen = parse_attentions(args.head_aggregation_attention, "head_aggregation_attention")
    reason = f"--head-aggregation-attention is {args.head_aggregation_attention}"
    if "enc-self" not in chosen:
        yield "head_aggregation_encoder_layers", reason
    if chosen == {"enc-self"}:
        yield "head_aggregation_decoder_layers", reason


def complete(args: Any, preset: Dict[str, Any]) -> None:
    """Fill in every switch that ``args`` does not hold: from the preset, else the default.

    A preset's value that the given switches leave without effect is dropped; the same in a given
    switch is an error, because its user expects an effect.

    Raises:
        ConfigurationError: a switch that was given can have no effect.
    """
    given = {name for name in defaults() if safe_hasattr(args, name)}
    for name, default in defaults().items():
        if name not in given:
            setattr(args, name, preset.get(name, default))
    require(args, "head_aggregation", HEAD_AGGREGATIONS)
    for name, reason in without_effect(args):
        value, default = getattr(args, name), defaults()[name]
        if name in given and value != default:
            raise ConfigurationError(
                f"{flag(name)} {value} has no effect because {reason}: drop it or change that"
            )
        setattr(args, name, default)


def require(args: Any, name: str, allowed: Tuple[str, ...]) -> None:
    """Raise unless the switch has one of the allowed values."""
    value = getattr(args, name)
    if value not in allowed:
        raise ConfigurationError(f"{flag(name)}: {value!r}: choose from {', '.join(allowed)}")


def validate(args: Any) -> None:
    """Refuse, before anything is built, what cannot work. ``args`` is complete and flat.

    Raises:
        ConfigurationError: one line: what was given, what is allowed, what to change.
    """
    for side in ("encoder", "decoder"):
        if safe_getattr(args, f"{side}_xformers_att_config"):
            raise ConfigurationError(
                f"--{side}-xformers-att-config: capsnmt brings its own attention: drop the flag"
            )
    require(args, "routing_backend", BACKENDS)
    if args.routing_iterations < 1:
        raise ConfigurationError(
            f"--routing-iterations: {args.routing_iterations}: give 1 or more (the papers use 3)"
        )
    if args.head_aggregation != "linear":
        _validate_head_aggregation(args)


def _validate_head_aggregation(args: Any) -> None:
    chosen = parse_attentions(args.head_aggregation_attention, "head_aggregation_attention")
    if "enc-dec" in chosen and safe_getattr(args, "no_cross_attention", False):
        raise ConfigurationError(
            "--head-aggregation-attention enc-dec: there is no such attention with "
            "--no-cross-attention: drop one of them"
        )
    if safe_getattr(args, "quant_noise_pq", 0):
        raise ConfigurationError(
            f"--quant-noise-pq {args.quant_noise_pq}: routed heads have no output projection to "
            f"quantise: use --head-aggregation linear or drop it"
        )
    sides = {"encoder" if attention == "enc-self" else "decoder" for attention in chosen}
    for side in sorted(sides):
        name = f"head_aggregation_{side}_layers"
        parse_layers(getattr(args, name), getattr(args, f"{side}_layers"), name)
        if safe_getattr(args, f"{side}_layers_to_keep") and getattr(args, name) != "all":
            raise ConfigurationError(
                f"--{side}-layers-to-keep renumbers the layers that {flag(name)} names: prune "
                f"only models whose layers are all alike"
            )
        width = getattr(args, f"{side}_embed_dim")
        if args.head_capsules < 0 or width % (args.head_capsules or width):
            divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
            raise ConfigurationError(
                f"--head-capsules: {args.head_capsules} does not divide the {side}'s width "
                f"{width}: give one of {divisors}, or 0 for {width}"
            )

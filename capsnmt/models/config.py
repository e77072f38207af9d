"""The switches of the composable Transformer, grouped by mechanism, and their choices.

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple, Type

from fairseq.dataclass import FairseqDataclass

from capsnmt.models.selection import ATTENTIONS, flag, parse_attentions
from capsnmt.modules.autocast import AUTOCASTS
from capsnmt.modules.capsule_attention import DECODER_ROUTINGS, ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS
from capsnmt.modules.head_aggregation import ROUTINGS as ROUTED_HEADS
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS
from capsnmt.modules.layer_aggregation import ROUTINGS as ROUTED_LAYERS
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.routing.backend import BACKENDS

SIDES = ("encoder", "decoder", "both")
CAPSULE_INPUTS = ("all", "own")
MULTI_LAYER_ATTENTIONS = ("none", *VARIANTS)
LAYER_LIST = "all, or 1-based lists and ranges: 1,4-6"

Idle = Callable[[Any], Optional[str]]
"""Returns why a switch has no effect given all of them, or None."""


def switch(default: Any, help: str, choices: Sequence[str] = (), idle: Sequence[Idle] = ()) -> Any:
    """Declare a switch.

    Args:
        default: with it, the model is fairseq's Transformer.
        help: its description; ``{}`` stands for the choices.
        choices: the values that it may have; none: any of its type.
        idle: when it has no effect.
    """
    described = help.format(", ".join(choices))
    return field(default=default, metadata={"help": described, "allowed": choices, "idle": idle})


def with_value(name: str, *values: str) -> Idle:
    """A switch has no effect while another one has one of these values."""

    def reason(args: Any) -> Optional[str]:
        value = getattr(args, name)
        return f"{flag(name)} is {value}" if value in values else None

    return reason


def without_attention(*attentions: str) -> Idle:
    """A switch has no effect while the heads of none of these attentions are aggregated."""

    def reason(args: Any) -> Optional[str]:
        name = "head_aggregation_attention"
        chosen = parse_attentions(getattr(args, name), name)
        return None if chosen & set(attentions) else f"{flag(name)} is {getattr(args, name)}"

    return reason


def routes_heads(args: Any) -> bool:
    """Return whether heads are aggregated by routing-by-agreement."""
    return args.head_aggregation in ROUTED_HEADS


def without_routing(args: Any) -> Optional[str]:
    """A switch has no effect while nothing is routed."""
    capsules = {args.capsule_routing_encoder, args.capsule_routing_decoder}
    layers = args.layer_aggregation in ROUTED_LAYERS
    return None if routes_heads(args) or layers or capsules != {"none"} else "nothing is routed"


LINEAR = with_value("head_aggregation", "linear")
UNROUTED_HEADS = with_value("head_aggregation", *(set(HEAD_AGGREGATIONS) - set(ROUTED_HEADS)))
NO_AGGREGATION = with_value("layer_aggregation", "none")
UNROUTED_LAYERS = with_value("layer_aggregation", *(set(LAYER_AGGREGATIONS) - set(ROUTED_LAYERS)))
OTHER_CONNECTIONS = with_value(
    "layer_aggregation", *(set(LAYER_AGGREGATIONS) - {"attention-residuals"})
)
NO_MLMHA = with_value("mlmha", "none")


@dataclass
class RoutingConfig(FairseqDataclass):
    """Settings of all routing operators."""

    routing_iterations: int = switch(
        3, "T, the number of iterations of all routing-by-agreement", idle=[without_routing]
    )
    routing_backend: str = switch(
        "auto",
        "how routing is run: {}; affects the speed, not the result",
        choices=BACKENDS,
        idle=[without_routing],
    )


@dataclass
class HeadAggregationConfig(FairseqDataclass):
    """Aggregation of attention heads: routing (Li et al. 2019), gated heads, talking heads."""

    head_aggregation: str = switch(
        "linear",
        "aggregation of attention heads: {}; linear is the Transformer's output projection",
        choices=HEAD_AGGREGATIONS,
    )
    head_aggregation_attention: str = switch(
        "enc-self",
        f"attentions it applies to: comma-separated list of {', '.join(ATTENTIONS)}",
        idle=[LINEAR],
    )
    head_aggregation_encoder_layers: str = switch(
        "all",
        f"encoder layers it applies to: {LAYER_LIST}",
        idle=[LINEAR, without_attention("enc-self")],
    )
    head_aggregation_decoder_layers: str = switch(
        "all",
        f"decoder layers it applies to: {LAYER_LIST}",
        idle=[LINEAR, without_attention("enc-dec", "dec-self")],
    )
    head_capsules: int = switch(
        0,
        "N, the number of output capsules: a divisor of the model's width d; 0 means d",
        idle=[UNROUTED_HEADS],
    )
    head_capsule_norm: bool = switch(
        False, "apply layer normalisation to the output capsules", idle=[UNROUTED_HEADS]
    )


@dataclass
class LayerAggregationConfig(FairseqDataclass):
    """Aggregation of a stack's layers (Dou et al. 2019)."""

    layer_aggregation: str = switch(
        "none", "aggregation of a stack's layers: {}", choices=LAYER_AGGREGATIONS
    )
    layer_aggregation_side: str = switch(
        "both",
        "stacks it applies to: {}; transparent: encoder",
        choices=SIDES,
        idle=[NO_AGGREGATION],
    )
    layer_capsules: int = switch(
        0,
        "N, the number of output capsules: a divisor of the stack's width d; 0 means d",
        idle=[UNROUTED_LAYERS],
    )
    layer_capsule_input: str = switch(
        "all",
        "layers from which a layer's capsule is computed: {}",
        choices=CAPSULE_INPUTS,
        idle=[UNROUTED_LAYERS],
    )
    attention_residuals_block: int = switch(
        1,
        "S, the sublayers of a block of attention residuals; 1 is the full form",
        idle=[OTHER_CONNECTIONS],
    )


@dataclass
class MultiLayerAttentionConfig(FairseqDataclass):
    """Encoder-decoder attention over several encoder layers (Ampomah et al. 2020)."""

    mlmha: str = switch(
        "none", "multi-layer multi-head attention: {}", choices=MULTI_LAYER_ATTENTIONS
    )
    mlmha_sources: int = switch(
        0, "n: attend to the n top encoder layers; 0 means all", idle=[NO_MLMHA]
    )
    mlmha_mask_source: int = switch(
        0,
        "1-based encoder layer whose output the decoder sees as zero, at generation "
        "only; 0 means none",
        idle=[NO_MLMHA],
    )


@dataclass
class CapsuleRoutingConfig(FairseqDataclass):
    """Capsule-routing self-attention (Duan et al. 2020)."""

    capsule_routing_encoder: str = switch(
        "none", "routing of encoder self-attention: {}", choices=ENCODER_ROUTINGS
    )
    capsule_routing_decoder: str = switch(
        "none", "routing of decoder self-attention: {}", choices=DECODER_ROUTINGS
    )
    capsule_routing_encoder_layers: str = switch(
        "all",
        f"encoder layers it applies to: {LAYER_LIST}",
        idle=[with_value("capsule_routing_encoder", "none")],
    )
    capsule_routing_decoder_layers: str = switch(
        "all",
        f"decoder layers it applies to: {LAYER_LIST}",
        idle=[with_value("capsule_routing_decoder", "none")],
    )


@dataclass
class PrecisionConfig(FairseqDataclass):
    """Precision of the matrix products."""

    autocast: str = switch(
        "none",
        "precision of the matrix products: {}; none is that of the parameters",
        choices=AUTOCASTS,
    )


@dataclass
class CompilationConfig(FairseqDataclass):
    """Compilation of encoder and decoder."""

    compile: bool = switch(
        False, "train encoder and decoder compiled by torch.compile, as one graph each"
    )


@dataclass
class InitialisationConfig(FairseqDataclass):
    """Initial parameters from a checkpoint (Dou et al. 2019 started from a trained baseline)."""

    init_from: Optional[str] = switch(
        None, "checkpoint to initialise from: loads every tensor of equal name and shape"
    )


MECHANISMS: Tuple[Type[FairseqDataclass], ...] = (
    RoutingConfig,
    HeadAggregationConfig,
    LayerAggregationConfig,
    MultiLayerAttentionConfig,
    CapsuleRoutingConfig,
    PrecisionConfig,
    CompilationConfig,
    InitialisationConfig,
)


def options() -> Iterator[Any]:
    """Yield every switch as a field of its dataclass."""
    for group in MECHANISMS:
        # fairseq's own begin with an underscore
        yield from (option for option in fields(group) if not option.name.startswith("_"))


def switches(group: Type[FairseqDataclass]) -> Dict[str, Any]:
    """Return the switches of a mechanism with their defaults."""
    own = (option for option in fields(group) if not option.name.startswith("_"))
    return {option.name: option.default for option in own}


def defaults() -> Dict[str, Any]:
    """Return all switches with their defaults, which leave fairseq's Transformer unchanged."""
    return {option.name: option.default for option in options()}


CHOICES: Dict[str, Tuple[str, ...]] = {
    option.name: option.metadata["allowed"] for option in options() if option.metadata["allowed"]
}


def without_effect(args: Any) -> Iterator[Tuple[str, str]]:
    """Yield each switch that has no effect given the others, with the reason."""
    for option in options():
        for idle in option.metadata["idle"]:
            reason = idle(args)
            if reason is not None:
                yield option.name, reason
                break

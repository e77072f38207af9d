"""The switches of the composable Transformer, grouped by mechanism, and their choices.

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Dict, Optional, Tuple, Type

from fairseq.dataclass import FairseqDataclass

from capsnmt.modules.autocast import AUTOCASTS
from capsnmt.modules.capsule_attention import DECODER_ROUTINGS, ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.routing.backend import BACKENDS

ATTENTIONS = ("enc-self", "enc-dec", "dec-self")
SIDES = ("encoder", "decoder", "both")
CAPSULE_INPUTS = ("all", "own")
MULTI_LAYER_ATTENTIONS = ("none", *VARIANTS)
LAYER_LIST = "all, or 1-based lists and ranges: 1,4-6"


@dataclass
class RoutingConfig(FairseqDataclass):
    """Settings of all routing operators."""

    routing_iterations: int = field(
        default=3, metadata={"help": "T, the number of iterations of all routing-by-agreement"}
    )
    routing_backend: str = field(
        default="auto",
        metadata={
            "help": f"how routing is run: {', '.join(BACKENDS)}; affects the speed, not the result"
        },
    )


@dataclass
class HeadAggregationConfig(FairseqDataclass):
    """Aggregation of attention heads: routing (Li et al. 2019), gated heads, talking heads."""

    head_aggregation: str = field(
        default="linear",
        metadata={
            "help": f"aggregation of attention heads: {', '.join(HEAD_AGGREGATIONS)}; "
            "linear is the Transformer's output projection"
        },
    )
    head_aggregation_attention: str = field(
        default="enc-self",
        metadata={
            "help": f"attentions it applies to: comma-separated list of {', '.join(ATTENTIONS)}"
        },
    )
    head_aggregation_encoder_layers: str = field(
        default="all",
        metadata={"help": f"encoder layers it applies to: {LAYER_LIST}"},
    )
    head_aggregation_decoder_layers: str = field(
        default="all",
        metadata={"help": f"decoder layers it applies to: {LAYER_LIST}"},
    )
    head_capsules: int = field(
        default=0,
        metadata={
            "help": "N, the number of output capsules: a divisor of the model's width d; 0 means d"
        },
    )
    head_capsule_norm: bool = field(
        default=False, metadata={"help": "apply layer normalisation to the output capsules"}
    )


@dataclass
class LayerAggregationConfig(FairseqDataclass):
    """Aggregation of a stack's layers (Dou et al. 2019)."""

    layer_aggregation: str = field(
        default="none",
        metadata={"help": f"aggregation of a stack's layers: {', '.join(LAYER_AGGREGATIONS)}"},
    )
    layer_aggregation_side: str = field(
        default="both",
        metadata={"help": f"stacks it applies to: {', '.join(SIDES)}; transparent: encoder"},
    )
    layer_capsules: int = field(
        default=0,
        metadata={
            "help": "N, the number of output capsules: a divisor of the stack's width d; 0 means d"
        },
    )
    layer_capsule_input: str = field(
        default="all",
        metadata={
            "help": f"layers from which a layer's capsule is computed: {', '.join(CAPSULE_INPUTS)}"
        },
    )


@dataclass
class MultiLayerAttentionConfig(FairseqDataclass):
    """Encoder-decoder attention over several encoder layers (Ampomah et al. 2020)."""

    mlmha: str = field(
        default="none",
        metadata={"help": f"multi-layer multi-head attention: {', '.join(MULTI_LAYER_ATTENTIONS)}"},
    )
    mlmha_sources: int = field(
        default=0,
        metadata={"help": "n: attend to the n top encoder layers; 0 means all"},
    )
    mlmha_mask_source: int = field(
        default=0,
        metadata={
            "help": "1-based encoder layer whose output the decoder sees as zero, at generation "
            "only; 0 means none"
        },
    )


@dataclass
class CapsuleRoutingConfig(FairseqDataclass):
    """Capsule-routing self-attention (Duan et al. 2020)."""

    capsule_routing_encoder: str = field(
        default="none",
        metadata={"help": f"routing of encoder self-attention: {', '.join(ENCODER_ROUTINGS)}"},
    )
    capsule_routing_decoder: str = field(
        default="none",
        metadata={"help": f"routing of decoder self-attention: {', '.join(DECODER_ROUTINGS)}"},
    )
    capsule_routing_encoder_layers: str = field(
        default="all", metadata={"help": f"encoder layers it applies to: {LAYER_LIST}"}
    )
    capsule_routing_decoder_layers: str = field(
        default="all", metadata={"help": f"decoder layers it applies to: {LAYER_LIST}"}
    )


@dataclass
class PrecisionConfig(FairseqDataclass):
    """Precision of the matrix products."""

    autocast: str = field(
        default="none",
        metadata={
            "help": f"precision of the matrix products: {', '.join(AUTOCASTS)}; none is that of "
            "the parameters"
        },
    )


@dataclass
class CompilationConfig(FairseqDataclass):
    """Compilation of encoder and decoder."""

    compile: bool = field(
        default=False,
        metadata={"help": "train encoder and decoder compiled by torch.compile, as one graph each"},
    )


@dataclass
class InitialisationConfig(FairseqDataclass):
    """Initial parameters from a checkpoint (Dou et al. 2019 started from a trained baseline)."""

    init_from: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint to initialise from: loads every tensor of equal name and shape"
        },
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


def switches(group: Type[FairseqDataclass]) -> Dict[str, Any]:
    """Return the switches of a mechanism with their defaults."""
    return {
        option.name: option.default
        for option in fields(group)
        if not option.name.startswith("_")  # fairseq's own
    }


def defaults() -> Dict[str, Any]:
    """Return all switches with their defaults, which leave fairseq's Transformer unchanged."""
    return {name: default for group in MECHANISMS for name, default in switches(group).items()}


def flag(name: str) -> str:
    """Return the command-line flag of a switch.

    >>> flag("head_capsules")
    '--head-capsules'
    """
    return "--" + name.replace("_", "-")

"""The switches of the composable Transformer, grouped by mechanism, and their choices."""

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence

from fairseq.dataclass import FairseqDataclass

from capsnmt.models.precision import AUTOCASTS
from capsnmt.models.selection import ATTENTIONS, ATTENTIONS_OF
from capsnmt.models.switches import Exclusion, Values, changed_effects, defaults_of, switch
from capsnmt.modules.algorithms import COEFFICIENTS, OF_HEADS, OF_LAYERS
from capsnmt.modules.capsule_attention import DECODER_ROUTINGS, ENCODER_ROUTINGS
from capsnmt.modules.head_aggregation import HEAD_AGGREGATIONS
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS, OVERFLOW_FP16
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.routing.backend import BACKENDS

SIDES = ("encoder", "decoder", "both")
# **D**: the papers use 3. The gradients need all of them, so that a slip would fill the memory.
MOST_ITERATIONS = 100

HEADS = {"head_aggregation": HEAD_AGGREGATIONS[1:]}
ROUTES_HEADS = {"head_aggregation": tuple(OF_HEADS)}
DROPS_HEADS: Values = {"drop_head": ()}
ENC_DEC = {"head_aggregation_attention": ("enc-dec",)}
LAYERS = {"layer_aggregation": LAYER_AGGREGATIONS[1:]}
ROUTES_LAYERS = {"layer_aggregation": tuple(OF_LAYERS)}
TRANSPARENT = {"layer_aggregation": ("transparent",)}
OF_SIDE = {"layer_aggregation_side": ("decoder", "both")}
OF_DECODER = {**LAYERS, **OF_SIDE}
MULTI_LAYER = {"mlmha": VARIANTS}
FUSES: Values = {"surface_fusion": ()}
ENCODER_CAPSULES = {"capsule_routing_encoder": ENCODER_ROUTINGS[1:]}
DECODER_CAPSULES = {"capsule_routing_decoder": DECODER_ROUTINGS[1:]}
CAPSULES = (ENCODER_CAPSULES, DECODER_CAPSULES)
ROUTES = (ROUTES_HEADS, ROUTES_LAYERS, *CAPSULES)


def list_of_layers(side: str, needs: Values) -> Any:
    """Declare the switch that names the layers of the encoder or decoder with a mechanism."""
    return switch(
        "all",
        f"{side} layers it applies to: all, or 1-based lists and ranges: 1,4-6",
        needs=[needs],
        of_decoder=side == "decoder",
    )


@dataclass
class SwitchesConfig(FairseqDataclass):
    """All switches of the composable Transformer."""

    # aggregation of attention heads: routing (Li et al. 2019), or gated or mixed heads
    head_aggregation: str = switch(
        "linear",
        "aggregation of attention heads: {}; linear is the Transformer's output projection",
        choices=HEAD_AGGREGATIONS,
    )
    head_aggregation_attention: str = switch(
        "enc-self",
        "attentions it applies to: comma-separated list of {}",
        words=ATTENTIONS,
        needs=[HEADS],
    )
    head_aggregation_encoder_layers: str = list_of_layers(
        "encoder", {**HEADS, "head_aggregation_attention": ATTENTIONS_OF["encoder"]}
    )
    head_aggregation_decoder_layers: str = list_of_layers(
        "decoder", {**HEADS, "head_aggregation_attention": ATTENTIONS_OF["decoder"]}
    )
    head_capsules: int = switch(
        0,
        "N, the number of output capsules: a divisor of the model's width d; 0 means d",
        needs=[ROUTES_HEADS],
    )
    head_capsule_norm: bool = switch(
        False, "apply layer normalisation to the output capsules", needs=[ROUTES_HEADS]
    )
    head_composition_rank: int = switch(
        2,
        "r, the rank of the maps over the heads that a query or key makes",
        least=1,
        note="the authors use 2",
        needs=[{"head_aggregation": ("composed",)}],
    )

    # aggregation of a stack's layers (Dou et al. 2019)
    layer_aggregation: str = switch(
        "none", "aggregation of a stack's layers: {}", choices=LAYER_AGGREGATIONS
    )
    layer_aggregation_side: str = switch(
        "both", "stacks it applies to: {}; transparent: encoder", choices=SIDES, needs=[LAYERS]
    )
    layer_capsules: int = switch(
        0,
        "N, the number of output capsules: a divisor of the stack's width d; 0 means d",
        needs=[ROUTES_LAYERS],
    )
    layer_capsule_input: str = switch(
        "all",
        "layers from which a layer's capsule is computed: {}",
        choices=("all", "own"),
        needs=[ROUTES_LAYERS],
    )
    attention_residuals_block: int = switch(
        1,
        "S, the sublayers of a block of attention residuals; 1 is the full form",
        needs=[{"layer_aggregation": ("attention-residuals",)}],
    )

    # encoder-decoder attention over several encoder layers (Ampomah et al. 2020)
    mlmha: str = switch(
        "none", "multi-layer multi-head attention: {}", choices=("none", *VARIANTS), of_decoder=True
    )
    mlmha_sources: int = switch(
        0,
        "n: attend to the n top encoder layers; 0 means all",
        needs=[MULTI_LAYER],
        of_decoder=True,
    )
    mlmha_mask_source: int = switch(
        0,
        "1-based encoder layer whose output the decoder sees as zero, at generation "
        "only; 0 means none",
        needs=[MULTI_LAYER],
        of_decoder=True,
    )

    # prediction of words from the source embeddings (Liu et al. 2021)
    surface_fusion: float = switch(
        0.0,
        "1 - lambda, the weight of the words that an attention to the source embeddings predicts; "
        "the authors use 0.2",
        of_decoder=True,
    )

    # capsule-routing self-attention (Duan et al. 2020)
    capsule_routing_encoder: str = switch(
        "none", "routing of encoder self-attention: {}", choices=ENCODER_ROUTINGS
    )
    capsule_routing_decoder: str = switch(
        "none", "routing of decoder self-attention: {}", choices=DECODER_ROUTINGS, of_decoder=True
    )
    capsule_routing_encoder_layers: str = list_of_layers("encoder", ENCODER_CAPSULES)
    capsule_routing_decoder_layers: str = list_of_layers("decoder", DECODER_CAPSULES)

    # settings of all routing operators
    routing_iterations: int = switch(
        3,
        "T, the number of iterations of all routing-by-agreement",
        least=1,
        most=MOST_ITERATIONS,
        note="the papers use 3",
        needs=ROUTES,
    )
    routing_coefficients: str = switch(
        "agreement",
        "coupling coefficients of EM routing: {}; random ones are drawn once and kept, a control",
        choices=COEFFICIENTS,
        needs=[
            {"head_aggregation": ("em",), "routing_iterations": (1,)},
            {"layer_aggregation": ("em-routing",), "routing_iterations": (1,)},
        ],
    )
    routing_backend: str = switch(
        "auto",
        "how routing is run: {}; affects the speed, not the result",
        choices=BACKENDS,
        needs=ROUTES,
    )

    # dropout of attention heads (Zhou et al. 2020)
    drop_head: float = switch(
        0.0, "P, the probability with which a head of any attention is dropped in training"
    )
    drop_head_fall_updates: int = switch(
        0, "N: it falls from P to 0 in the first N updates", least=0, needs=[DROPS_HEADS]
    )
    drop_head_rise_updates: int = switch(
        0, "M: then it rises to P in M updates", least=0, needs=[DROPS_HEADS]
    )

    # what is no mechanism
    autocast: str = switch(
        "none",
        "precision of the matrix products: {}; none keeps the parameters' precision",
        choices=AUTOCASTS,
    )
    compile: bool = switch(
        False, "train encoder and decoder compiled by torch.compile, as one graph each"
    )
    init_from: Optional[str] = switch(
        None, "checkpoint to initialise from: loads every tensor of equal name and shape"
    )


# what decides how a model is computed and trained, and not which function of its tensors it is
NOT_OF_FUNCTION = (
    *("routing_backend", "autocast", "compile", "init_from"),
    *("drop_head", "drop_head_fall_updates", "drop_head_rise_updates"),
)
NOT_EM = [name for name, each in {**OF_HEADS, **OF_LAYERS}.items() if not each.reads_activation]
NOT_RANDOM: List[Values] = [{"head_aggregation": NOT_EM}, {"layer_aggregation": NOT_EM}, *CAPSULES]
SYSTEMS: List[Values] = [HEADS, LAYERS, MULTI_LAYER, FUSES, *CAPSULES]
# of the encoder; a decoder without layers would not read it
SYSTEMS_OF: Dict[str, List[Values]] = {
    "encoder": [
        {**HEADS, "head_aggregation_attention": ("enc-self",)},
        {**LAYERS, "layer_aggregation_side": ("encoder", "both")},
        *(MULTI_LAYER, ENCODER_CAPSULES),
    ],
    "decoder": SYSTEMS,
}
OF_SOURCE: List[Values] = [TRANSPARENT, MULTI_LAYER, FUSES]
OF_ENCODER: List[Values] = [
    {**each, "cross_self_attention": (False,)}  # that reads it otherwise
    for each in (
        ENCODER_CAPSULES,
        {**HEADS, "head_aggregation_attention": ("enc-self",)},
        {**LAYERS, "layer_aggregation_side": ("encoder",)},
    )
]
LISTS: List[Values] = [
    {f"{mechanism}_{side}_layers": ()}
    for mechanism in ("head_aggregation", "capsule_routing")
    for side in ("encoder", "decoder")
]
PRUNED = ("encoder_layers_to_keep", "decoder_layers_to_keep")
QUANTISED = ("quant_noise_pq", "quant_noise_scalar", "quantization_config_path")
FP16 = ("memory_efficient_fp16", "fp16")  # the first sets the second, as of activations below
PRECISIONS = ("amp", *FP16, "memory_efficient_bf16", "bf16")
OVERFLOWS = {"layer_aggregation": OVERFLOW_FP16}
STARTS = ("finetune_from_model", "continue_once")
NO_GRAPH = (
    *("encoder_layerdrop", "decoder_layerdrop", "quant_noise_pq", "quant_noise_scalar"),
    *("offload_activations", "checkpoint_activations", "base_layers", "disagreement"),
)
READS_INSIDE = {"criterion": ("label_smoothed_cross_entropy_with_disagreement",)}
ALIGNS = {
    "load_alignments": (),
    "criterion": ("label_smoothed_cross_entropy_with_alignment",),
}
GRAPH = "a graph is the same in every update, and nothing reads its inside"
EXCLUSIONS: Sequence[Exclusion] = [
    (NOT_RANDOM, ["routing_coefficients"], "only EM routing can have them"),
    ([{**TRANSPARENT, **OF_SIDE}], ["layer_aggregation_side"], "it mixes the encoder's layers"),
    ([TRANSPARENT], ["mlmha"], "both decide what the encoder hands to each decoder layer"),
    ([ENC_DEC, *OF_SOURCE], ["no_cross_attention"], "there is no encoder-decoder attention"),
    (OF_ENCODER, ["no_cross_attention"], "no layer of the decoder reads the encoder"),
    (OF_SOURCE, ["cross_self_attention"], "the keys are not the encoder's output alone"),
    ([DECODER_CAPSULES], ["cross_self_attention"], "the keys are not the decoder's words alone"),
    ([FUSES], ["adaptive_softmax_cutoff"], "two full distributions are fused"),
    (SYSTEMS, QUANTISED, "fairseq quantises its own Transformer only"),
    ([LAYERS, MULTI_LAYER, *LISTS], PRUNED, "pruning removes or renumbers layers that are read"),
    ([OF_DECODER], ["base_layers"], "base layers are no layers of the aggregated decoder"),
    ([OVERFLOWS], FP16, "the gradients of its weights overflow fp16 (--autocast bf16 does not)"),
    ([{"autocast": ()}], PRECISIONS, "both choose the precision"),
    ([{"compile": ()}], NO_GRAPH, GRAPH),
    ([READS_INSIDE], ["compile"], GRAPH),
    ([ALIGNS], ["decoder_layerdrop"], "the top layer, whose weights are learned, may not run"),
    ([{"init_from": ()}], STARTS, "the latter replaces every parameter"),
]
"""Settings, the options that each of them excludes, and why."""


def defaults() -> Dict[str, Any]:
    """Return all switches with their defaults, which leave fairseq's Transformer unchanged."""
    return defaults_of(SwitchesConfig)


def changed(before: Any, now: Any) -> Iterator[str]:
    """Yield each switch by which a model computes something else than one of settings ``before``.

    Both may have the same tensors.
    """
    names = changed_effects(before, now, SwitchesConfig)
    return (name for name in names if name not in NOT_OF_FUNCTION)

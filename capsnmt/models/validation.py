"""Refusal of combinations that cannot work, before anything is built."""

from __future__ import annotations

from typing import Any, Sequence

from fairseq.utils import safe_getattr

from capsnmt.cli import ConfigurationError
from capsnmt.models.config import SIDES, flag, routes_heads
from capsnmt.models.selection import parse_attentions, parse_layers, sublayers

# **D**: the papers use 3. The gradients need all of them, so that a slip would fill the memory.
MOST_ITERATIONS = 100
PROBABILITIES = (
    *("dropout", "attention_dropout", "activation_dropout", "adaptive_softmax_dropout"),
    *("encoder_layerdrop", "decoder_layerdrop"),
)


def validate(args: Any) -> None:
    """Refuse settings that cannot work, before anything is built. ``args`` is complete and flat.

    Raises:
        ConfigurationError: one line with the value, what is allowed, and what to change.
    """
    for side in ("encoder", "decoder"):
        if safe_getattr(args, f"{side}_xformers_att_config"):
            raise ConfigurationError(
                f"--{side}-xformers-att-config is not for capsnmt, which has its own attention; "
                f"drop it"
            )
    for name in PROBABILITIES:
        share = safe_getattr(args, name) or 0
        if not 0 <= share < 1:
            raise ConfigurationError(f"{flag(name)} is {share}; give 0 or more, and less than 1")
    if not 1 <= args.routing_iterations <= MOST_ITERATIONS:
        raise ConfigurationError(
            f"--routing-iterations is {args.routing_iterations}; give 1 to {MOST_ITERATIONS} (the "
            f"papers use 3)"
        )
    if args.head_aggregation != "linear":
        _validate_head_aggregation(args)
    if args.layer_aggregation != "none":
        _validate_layer_aggregation(args)
    if args.mlmha != "none":
        _validate_multi_layer_attention(args)
    _validate_capsule_routing(args)
    _validate_readers(args)
    _validate_precision(args)
    if args.compile:
        _validate_compilation(args)


def _validate_precision(args: Any) -> None:
    for name in ("amp", "fp16", "bf16"):
        if args.autocast != "none" and safe_getattr(args, name, False):
            raise ConfigurationError(
                f"--autocast {args.autocast} and --{name} both choose the precision; drop one of "
                f"them"
            )


# what --compile excludes: its flags, and why
UNCOMPILED = {
    "encoder_layerdrop": "draws the layers of every update anew",
    "decoder_layerdrop": "draws the layers of every update anew",
    "checkpoint_activations": "runs layers again from outside of the graph",
    "quant_noise_pq": "draws the weights of every update anew",
    "quant_noise_scalar": "draws the weights of every update anew",
    "base_layers": "exchanges tokens between GPUs",
}


def _validate_compilation(args: Any) -> None:
    for name, effect in UNCOMPILED.items():
        if safe_getattr(args, name, None):
            raise ConfigurationError(
                f"--compile and {flag(name)} {getattr(args, name)}, which {effect}; drop one of "
                f"them"
            )
    if str(safe_getattr(args, "criterion", "")).endswith("with_disagreement"):
        raise ConfigurationError(
            f"--compile and --criterion {args.criterion}, which reads every layer on the way; drop "
            f"one of them"
        )
    if safe_getattr(args, "disagreement", "none") != "none":  # of a sentence classifier
        raise ConfigurationError(
            f"--compile and --disagreement {args.disagreement}, which reads every layer on the "
            f"way; drop one of them"
        )


def _require_cross_attention(args: Any, given: str) -> None:
    if safe_getattr(args, "no_cross_attention", False):
        raise ConfigurationError(
            f"{given} needs the encoder-decoder attention that --no-cross-attention removes; drop "
            f"one of them"
        )
    if safe_getattr(args, "cross_self_attention", False) and "enc-dec" not in given:
        raise ConfigurationError(
            f"{given} excludes --cross-self-attention, which needs a single encoder output; drop "
            f"one of them"
        )


def _validate_head_aggregation(args: Any) -> None:
    chosen = parse_attentions(args.head_aggregation_attention, "head_aggregation_attention")
    if "enc-dec" in chosen:
        _require_cross_attention(args, "--head-aggregation-attention enc-dec")
    if routes_heads(args) and safe_getattr(args, "quant_noise_pq", 0):
        raise ConfigurationError(
            f"--quant-noise-pq {args.quant_noise_pq} quantises output projections, which routed "
            f"heads do not have; give --head-aggregation linear or drop it"
        )
    sides = {"encoder" if attention == "enc-self" else "decoder" for attention in chosen}
    for side in sorted(sides):
        _validate_layers(args, "head_aggregation", f"head_aggregation_{side}_layers", side)
        _validate_capsules(args, "head_capsules", side)


def _validate_layers(args: Any, switch: str, name: str, side: str) -> None:
    layers = getattr(args, f"{side}_layers")
    if layers < 1:
        raise ConfigurationError(
            f"--{side}-layers is {layers}, and {flag(switch)} needs a layer; give 1 or more, or "
            f"drop it"
        )
    parse_layers(getattr(args, name), layers, name)
    if getattr(args, name) != "all":
        _refuse_pruning(args, side, f"renumbers the layers that {flag(name)} names")


def _refuse_pruning(args: Any, side: str, effect: str) -> None:
    if safe_getattr(args, f"{side}_layers_to_keep"):
        raise ConfigurationError(
            f"--{side}-layers-to-keep {effect}: prune only models whose layers are all alike"
        )


def _validate_capsules(args: Any, name: str, side: str) -> None:
    capsules, width = getattr(args, name), getattr(args, f"{side}_embed_dim")
    if capsules < 0 or width % (capsules or width):
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise ConfigurationError(
            f"{flag(name)} is {capsules}, which does not divide the {side}'s width {width}; give "
            f"one of {divisors}, or 0 for {width}"
        )


def _validate_layer_aggregation(args: Any) -> None:
    if args.layer_aggregation == "transparent":
        if args.layer_aggregation_side != "encoder":
            raise ConfigurationError(
                f"--layer-aggregation-side is {args.layer_aggregation_side}, but transparent "
                f"aggregates the encoder only; give encoder or drop the flag"
            )
        if args.mlmha != "none":
            raise ConfigurationError(
                f"--layer-aggregation transparent and --mlmha {args.mlmha} both decide what the "
                f"encoder hands to each decoder layer; choose one of them"
            )
        _require_cross_attention(args, "--layer-aggregation transparent")
    sides = SIDES[:2] if args.layer_aggregation_side == "both" else (args.layer_aggregation_side,)
    for side in SIDES[:2] if args.layer_aggregation == "transparent" else sides:
        if getattr(args, f"{side}_layers") < 1:
            raise ConfigurationError(
                f"--{side}-layers is {getattr(args, f'{side}_layers')}, and --layer-aggregation "
                f"{args.layer_aggregation} needs a layer; give 1 or more, or use none"
            )
    for side in sides:
        _refuse_pruning(args, side, f"removes layers that --layer-aggregation of the {side} reads")
        _validate_capsules(args, "layer_capsules", side)
    if args.layer_aggregation == "attention-residuals":
        _validate_attention_residuals(args, sides)
    if "decoder" in sides and safe_getattr(args, "base_layers", 0):
        raise ConfigurationError(
            f"--base-layers {args.base_layers} excludes --layer-aggregation of the decoder; give "
            f"--layer-aggregation-side encoder or drop one of them"
        )


def _validate_attention_residuals(args: Any, sides: Sequence[str]) -> None:
    for side in sides:
        if not getattr(args, f"{side}_normalize_before"):
            raise ConfigurationError(
                f"--layer-aggregation attention-residuals is for pre-norm, and the {side} is "
                f"post-norm; give --{side}-normalize-before, or choose dlcl or dense"
            )
    block = args.attention_residuals_block
    most = max(getattr(args, f"{side}_layers") * sublayers(args, side) for side in sides)
    if not 1 <= block <= most:
        raise ConfigurationError(
            f"--attention-residuals-block is {block}, and a stack has at most {most} sublayers; "
            f"give 1 to {most}"
        )


def _validate_multi_layer_attention(args: Any) -> None:
    given, layers = f"--mlmha {args.mlmha}", args.encoder_layers
    _require_cross_attention(args, given)
    _refuse_pruning(args, "encoder", "removes layers that --mlmha reads")
    for name in ("quant_noise_pq", "quant_noise_scalar", "quantization_config_path"):
        if safe_getattr(args, name, None):
            raise ConfigurationError(
                f"{flag(name)} {getattr(args, name)} does not quantise the projections of several "
                f"sources; give --mlmha none or drop it"
            )
    if not 0 <= args.mlmha_sources <= layers:
        raise ConfigurationError(
            f"--mlmha-sources is {args.mlmha_sources}, and this encoder has {layers} layers; give "
            f"1 to {layers}, or 0 for all"
        )
    lowest = layers - (args.mlmha_sources or layers) + 1
    if args.mlmha_mask_source and not lowest <= args.mlmha_mask_source <= layers:
        raise ConfigurationError(
            f"--mlmha-mask-source is {args.mlmha_mask_source}, and the decoder attends to the "
            f"encoder layers {lowest} to {layers}; give one of them, or 0 for none"
        )


def _validate_capsule_routing(args: Any) -> None:
    for side in ("encoder", "decoder"):
        name = f"capsule_routing_{side}"
        if getattr(args, name) != "none":
            _validate_layers(args, name, f"{name}_layers", side)
    if args.capsule_routing_decoder != "none" and safe_getattr(args, "cross_self_attention", False):
        raise ConfigurationError(
            f"--capsule-routing-decoder {args.capsule_routing_decoder} needs the decoder's "
            f"positions as keys, and --cross-self-attention has others; drop one of them"
        )


def _validate_readers(args: Any) -> None:
    """Refuse a gating network of translation_moe that expects another width of the encoder."""
    sources = 1
    if args.mlmha != "none":
        sources = args.mlmha_sources or args.encoder_layers
    elif args.layer_aggregation == "transparent":
        sources = args.decoder_layers
    width = sources * args.encoder_embed_dim
    name = "mean_pool_gating_network_encoder_dim"
    given = safe_getattr(args, name, 0) or args.encoder_embed_dim
    if safe_getattr(args, "mean_pool_gating_network", False) and given != width:
        raise ConfigurationError(
            f"{flag(name)} is {given}, and the encoder hands over {sources} source(s) of "
            f"{args.encoder_embed_dim} features; give {width}"
        )

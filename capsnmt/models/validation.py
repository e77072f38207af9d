"""Settings before anything is built: missing ones are set, those that cannot work refused."""

import sys
from argparse import ArgumentParser
from difflib import get_close_matches
from typing import Any, Dict, Sequence, Set

from fairseq.utils import safe_getattr, safe_hasattr

from capsnmt.cli import ConfigurationError
from capsnmt.models.config import EXCLUSIONS, SYSTEMS_OF, SwitchesConfig, defaults
from capsnmt.models.selection import ATTENTIONS_OF, parse_layers, sublayers
from capsnmt.models.switches import (
    check_values,
    flag,
    idle_switches,
    refuse_idle,
    refuse_together,
    spelled,
    switched_on,
    words_of,
)

STACKS = ("encoder", "decoder")
ALIKE = 0.8  # of two names, by difflib: none of fairseq's is so like one of ours
# fairseq's probabilities, and ours
PROBABILITIES = (
    *("dropout", "attention_dropout", "activation_dropout", "adaptive_softmax_dropout"),
    *("encoder_layerdrop", "decoder_layerdrop", "drop_head"),
    "surface_fusion",
)
# fairseq's: the embeddings of the decoder's words are the output projection as well
TIED = ("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed")


def complete(args: Any, preset: Dict[str, Any]) -> None:
    """Set every switch missing in ``args`` from the preset, or else to its default.

    A value of the preset that has no effect given the other switches is dropped. A switch that the
    user has set must have an effect.
    """
    given = {name for name in defaults() if safe_hasattr(args, name)}
    for name, default in defaults().items():
        if name not in given:
            setattr(args, name, _of_preset(args, name, preset) if name in preset else default)
    check_values(args, SwitchesConfig)
    if args.layer_aggregation == "transparent" and "layer_aggregation_side" not in given:
        args.layer_aggregation_side = "encoder"
    for name, reason in idle_switches(args, SwitchesConfig):
        if name in given:
            refuse_idle(args, name, reason)
        setattr(args, name, defaults()[name])


def _of_preset(args: Any, name: str, preset: Dict[str, Any]) -> Any:
    """Return a value of the preset; of a list of layers, those that the stack has.

    **D**: layers that a smaller model does not have are not an error of its user.
    """
    value = preset[name]
    if not name.endswith("_layers") or value == "all":
        return value
    side = "encoder" if "encoder" in name else "decoder"
    layers, named = int(getattr(args, f"{side}_layers")), parse_layers(value, sys.maxsize, name)
    return ",".join(str(layer) for layer in sorted(named) if layer <= layers) or "all"


def check_names(args: Any, model: Any) -> None:
    """Refuse what is meant for a switch: fairseq keeps any name of ``--model-overrides``.

    A user's own model, task or criterion may have an option that is called nearly so.
    """
    for name in vars(args):
        plain = name.replace("-", "_")
        (meant,) = get_close_matches(plain, defaults(), 1, ALIKE) or [plain]
        if name != meant and name not in _options(args, model):
            raise ConfigurationError(f"{name} is no setting; give {meant}")


def _options(args: Any, model: Any) -> Set[str]:
    """Return the options of a model, and of the task, the criterion and others that it is with."""
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_REGISTRY

    registries = {name: each["registry"] for name, each in REGISTRIES.items()}
    registries["task"] = TASK_REGISTRY
    chosen = [registry.get(str(safe_getattr(args, name))) for name, registry in registries.items()]
    found: Set[str] = set()
    for part in (model, *chosen):
        if hasattr(part, "add_args"):
            parser = ArgumentParser(add_help=False)  # two parts may have an option of one name
            part.add_args(parser)
            found.update(option.dest for option in parser._actions)
    return found


def validate(args: Any, stacks: Sequence[str] = STACKS) -> None:
    """Refuse settings that cannot work, before anything is built. ``args`` is complete and flat.

    A sentence classifier has an encoder only.
    """
    for name in PROBABILITIES:
        share = safe_getattr(args, name) or 0
        if not (isinstance(share, (int, float)) and 0 <= share < 1):
            raise ConfigurationError(f"{flag(name)} is {share!r}; give 0 or more, and less than 1")
    for side in stacks:
        if safe_getattr(args, f"{side}_xformers_att_config"):
            raise ConfigurationError(
                f"--{side}-xformers-att-config is not for capsnmt, which has its own attention; "
                f"drop it"
            )
    refuse_together(args, EXCLUSIONS)
    tied = next((name for name in TIED if safe_getattr(args, name)), None)
    if "decoder" in stacks and tied and not args.adaptive_softmax_cutoff:
        width = args.decoder_embed_dim
        if int(args.decoder_output_dim) != width:  # of its flag, a text
            raise ConfigurationError(
                f"{spelled(args, tied)} and {spelled(args, 'decoder_output_dim')}: the decoder's "
                f"embeddings have the width {width}; drop one of them"
            )
    for name in (f"{side}_layers_to_keep" for side in stacks):
        if isinstance(safe_getattr(args, name), list):  # fairseq reads a text, as of an override
            raise ConfigurationError(
                f"{spelled(args, name)} is of generation, and fairseq cannot train with it; drop "
                f"it, and generate with --model-overrides \"{{'encoder_layers_to_keep': '0,2', "
                f"'decoder_layers_to_keep': '0,1,2'}}\" (both sides; from 0)"
            )
    heads = {getattr(args, f"{side}_attention_heads") for side in stacks}
    if args.drop_head > 0 and heads == {1}:  # the only one is kept
        refuse_idle(args, "drop_head", "every attention has one head")
    for side in stacks:
        _validate_stack(args, side)
    if args.layer_aggregation == "attention-residuals":
        _validate_attention_residuals(args)
    if args.mlmha != "none":
        _validate_sources(args)


def _validate_stack(args: Any, side: str) -> None:
    """Refuse lists of layers, heads and capsules that do not fit the encoder or decoder."""
    layers, width = getattr(args, f"{side}_layers"), getattr(args, f"{side}_embed_dim")
    used = switched_on(args, SYSTEMS_OF[side])
    if layers < 1 and used:
        raise ConfigurationError(
            f"--{side}-layers is {layers}, and {spelled(args, used[0])} needs a layer; give 1 "
            f"or more, or drop it"
        )
    if layers < 0:
        raise ConfigurationError(f"--{side}-layers is {layers}; give 0 or more")
    capsules = []
    attentions = words_of(args.head_aggregation_attention)
    if args.head_aggregation != "linear" and attentions & set(ATTENTIONS_OF[side]):
        capsules.append("head_capsules")
        heads, rank = getattr(args, f"{side}_attention_heads"), args.head_composition_rank
        if args.head_aggregation == "composed" and rank > heads:
            raise ConfigurationError(
                f"--head-composition-rank is {rank}, and a map over {heads} heads has no more than "
                f"rank {heads}; give 1 to {heads}"
            )
    if args.layer_aggregation != "none" and args.layer_aggregation_side in (side, "both"):
        capsules.append("layer_capsules")
    for name in (f"head_aggregation_{side}_layers", f"capsule_routing_{side}_layers"):
        parse_layers(getattr(args, name), layers, name)
    for name in [f"{side}_attention_heads", *capsules]:
        count = getattr(args, name)
        least, also = (0, f", or 0 for {width}") if name in capsules else (1, "")
        if count < least or width % (count or width):
            divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
            raise ConfigurationError(
                f"{flag(name)} is {count}, which does not divide the {side}'s width {width}; give "
                f"one of {divisors}{also}"
            )


def _validate_attention_residuals(args: Any) -> None:
    sides = [side for side in STACKS if args.layer_aggregation_side in (side, "both")]
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


def _validate_sources(args: Any) -> None:
    layers = args.encoder_layers
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

"""The encoder of a classifier: no flag of a decoder, and that of a trained model to be probed."""

from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict

import torch.nn as nn
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import (
    DecoderConfig,
    EncDecBaseConfig,
    QuantNoiseConfig,
)
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_hasattr

from capsnmt.checkpoints.load import SIDES, check_dictionary, in_group, load_checkpoint, settings_of
from capsnmt.cli import ConfigurationError
from capsnmt.models.config import SwitchesConfig, defaults
from capsnmt.models.switches import declared, flag, spelled
from capsnmt.models.validation import complete
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS

# options of training, without effect in a frozen encoder, and options of other parts
NOT_OF_THE_ENCODER = {
    *("dropout", "attention_dropout", "activation_dropout", "relu_dropout", "encoder_layerdrop"),
    *("encoder_embed_path", "checkpoint_activations", "offload_activations", "init_from"),
    *("min_params_to_wrap", "routing_backend", "autocast", "encoder", "decoder", "quant_noise"),
    *("export", "encoder_layers_to_keep", "char_inputs", "compile"),
    *("drop_head", "drop_head_fall_updates", "drop_head_rise_updates"),
}
# fairseq's options of the decoder without "decoder" at the start of their names
OF_THE_DECODER = (
    *("max_target_positions", "share_decoder_input_output_embed", "share_all_embeddings"),
    *("merge_src_tgt_embed", "adaptive_input", "adaptive_softmax_cutoff"),
    *("adaptive_softmax_dropout", "adaptive_softmax_factor", "tie_adaptive_weights"),
    *("tie_adaptive_proj", "no_cross_attention", "cross_self_attention", "no_decoder_final_norm"),
    *("base_layers", "base_sublayers", "base_shuffle"),
)


def decoder_options() -> Dict[str, Any]:
    """Return all options that have no effect without a decoder, with their defaults."""
    options = {f"decoder_{option.name}": option.default for option in fields(DecoderConfig)}
    shared = {option.name: option.default for option in fields(TransformerConfig)}
    options.update({name: shared[name] for name in OF_THE_DECODER if name in shared})
    ours = declared(SwitchesConfig).items()
    options.update({name: each.default for name, each in ours if each.of_decoder})
    return options


def refuse_decoder(args: Namespace) -> None:
    """Refuse every setting of a decoder; ``args`` may also be complete, with every option set."""
    idle = decoder_options()
    expected = Namespace(**{k: v for k, v in in_group(args).items() if k not in idle})
    base_architecture(expected)
    allowed = {name: [value, getattr(expected, name, value)] for name, value in idle.items()}
    allowed["head_aggregation_attention"] = ["enc-self"]
    allowed["layer_aggregation"] = [x for x in LAYER_AGGREGATIONS if x != "transparent"]
    if getattr(args, "layer_aggregation", "none") != "none":
        allowed["layer_aggregation_side"] = ["encoder"]
    for name, values in allowed.items():
        if safe_hasattr(args, name) and getattr(args, name) not in values:
            raise ConfigurationError(
                f"{spelled(args, name)} has no effect, as a sentence classifier has no decoder; "
                f"drop it"
            )


def encoder_options() -> Dict[str, Any]:
    """Return the options that determine an encoder's outputs, fairseq's and ours, with defaults."""
    options = {f"encoder_{option.name}": option.default for option in fields(EncDecBaseConfig)}
    options.update({option.name: option.default for option in fields(TransformerConfig)})
    options.update({f"quant_noise_{o.name}": o.default for o in fields(QuantNoiseConfig)})
    options.update(defaults())
    idle = {*NOT_OF_THE_ENCODER, *decoder_options()}
    return {k: v for k, v in options.items() if k not in idle and not k.startswith("_")}


def trained_arguments(path: str) -> Namespace:
    """Return the model's arguments in a checkpoint of ``--probe-checkpoint``."""
    try:
        state = load_checkpoint(path)
    except ValueError as error:
        raise ConfigurationError(f"--probe-checkpoint: {error}") from None
    args = Namespace(**settings_of(state))
    if not (safe_hasattr(args, "encoder_layers") and safe_hasattr(args, "decoder_layers")):
        raise ConfigurationError(
            f"--probe-checkpoint {path} is no Transformer with encoder and decoder; give one"
        )
    return args


def adopt_encoder(args: Namespace) -> Dict[str, Any]:
    """Set ``args`` to the encoder of ``args.probe_checkpoint``, frozen; return its mechanisms.

    **D**: the encoder's top layer is probed, or the aggregate that replaces it. What else the
    decoder reads (in multi-layer and transparent attention) is not probed.
    """
    trained = trained_arguments(args.probe_checkpoint)
    values = {name: getattr(trained, name, default) for name, default in encoder_options().items()}
    decoders = values["layer_aggregation_side"] == "decoder"
    if decoders or values["layer_aggregation"] == "transparent":
        values["layer_aggregation"] = "none"
    aggregated = values["layer_aggregation"] != "none"
    values["layer_aggregation_side"] = "encoder" if aggregated else "both"
    if "enc-self" not in values["head_aggregation_attention"]:
        values["head_aggregation"] = "linear"
    values["head_aggregation_attention"] = "enc-self"
    mechanisms = Namespace(encoder_layers=values["encoder_layers"])
    complete(mechanisms, {name: value for name, value in values.items() if name in defaults()})
    values.update({name: getattr(mechanisms, name) for name in values.keys() & defaults().keys()})
    for name, value in values.items():
        if safe_hasattr(args, name) and getattr(args, name) != value:
            raise ConfigurationError(
                f"{flag(name)} is {getattr(args, name)}, but the encoder of --probe-checkpoint "
                f"{args.probe_checkpoint} has {value}; drop the flag"
            )
    args.freeze_encoder = True
    for name in values.keys() - defaults().keys():
        setattr(args, name, values[name])
    return {name: value for name, value in values.items() if name in defaults()}


def load_encoder(encoder: nn.Module, path: str, dictionary: Path) -> None:
    """Load all parameters of the encoder from a translation checkpoint."""
    checkpoint = load_checkpoint(path)
    known, settings = checkpoint.get("task_state") or {}, Namespace(**settings_of(checkpoint))
    check_dictionary(known, settings, SIDES[0], dictionary)
    state = checkpoint["model"]
    encoder.upgrade_state_dict_named(state, "encoder")
    own = encoder.state_dict()
    for name, tensor in own.items():
        found = state.get(f"encoder.{name}")
        if found is None or found.shape != tensor.shape:
            what = "no such tensor" if found is None else f"{tuple(found.shape)}"
            raise ConfigurationError(
                f"--probe-checkpoint {path}: encoder.{name} should be {tuple(tensor.shape)} and is "
                f"{what}; give the dictionary of its training by --dictionary"
            )
    encoder.load_state_dict({name: state[f"encoder.{name}"] for name in own})

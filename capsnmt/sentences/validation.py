"""Completion of a sentence classifier's switches, and refusal of flags without effect."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from typing import Any, Dict, Iterator

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_hasattr

from capsnmt.cli import ConfigurationError
from capsnmt.models.completion import require
from capsnmt.models.config import MultiLayerAttentionConfig, defaults, flag, switches
from capsnmt.modules.layer_aggregation import LAYER_AGGREGATIONS
from capsnmt.sentences.config import SentenceClassifierConfig
from capsnmt.sentences.pooling import POOLINGS

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
    idle = [*switches(MultiLayerAttentionConfig), "head_aggregation_decoder_layers"]
    idle += [name for name in defaults() if name.startswith("capsule_routing_decoder")]
    options.update({name: defaults()[name] for name in idle})
    return options


def refuse_decoder(args: Namespace) -> None:
    """Refuse every setting of a decoder.

    ``args`` may also be complete, with every option set.

    Raises:
        ConfigurationError: a flag of the decoder or of encoder-decoder attention is set.
    """
    idle = decoder_options()
    expected = Namespace(**{k: v for k, v in vars(args).items() if k not in idle})
    base_architecture(expected)
    for name, default in idle.items():
        allowed = (default, getattr(expected, name, default))
        if safe_hasattr(args, name) and getattr(args, name) not in allowed:
            raise ConfigurationError(
                f"{flag(name)} {getattr(args, name)} has no effect: a sentence classifier has no "
                f"decoder: drop it"
            )
    for name, word in _decoder_choices(args):
        raise ConfigurationError(
            f"{flag(name)} {getattr(args, name)}: a sentence classifier has no decoder: give "
            f"{word} or drop the flag"
        )


def _decoder_choices(args: Namespace) -> Iterator[Any]:
    """Yield each switch of a mechanism whose value needs a decoder, with an allowed value."""
    aggregation = getattr(args, "layer_aggregation", "none")
    if getattr(args, "head_aggregation_attention", "enc-self") != "enc-self":
        yield "head_aggregation_attention", "enc-self"
    if aggregation == "transparent":
        others = (mode for mode in LAYER_AGGREGATIONS if mode not in ("none", "transparent"))
        yield "layer_aggregation", ", ".join(others)
    if aggregation != "none" and getattr(args, "layer_aggregation_side", "encoder") != "encoder":
        yield "layer_aggregation_side", "encoder"


def complete_classifier(args: Namespace, preset: Dict[str, Any]) -> None:
    """Set missing switches of the classifier from the preset, or else to their default; check all.

    Raises:
        ConfigurationError: a value is not allowed or has no effect.
    """
    given = {name for name in switches(SentenceClassifierConfig) if safe_hasattr(args, name)}
    for name, default in switches(SentenceClassifierConfig).items():
        if name not in given:
            setattr(args, name, preset.get(name, default))
    require(args, "pooling", POOLINGS)
    default = switches(SentenceClassifierConfig)["pooling_queries"]
    if args.pooling == "mean":
        if "pooling_queries" in given and args.pooling_queries != default:
            raise ConfigurationError(
                f"--pooling-queries {args.pooling_queries} has no effect because --pooling is "
                f"mean: drop it or give --pooling queries"
            )
        args.pooling_queries = default
    for name, least in (("pooling_queries", 1), ("classifier_layers", 1), ("classifier_dim", 0)):
        if getattr(args, name) < least:
            raise ConfigurationError(f"{flag(name)}: {getattr(args, name)}: give {least} or more")
    if args.classifier_layers == 1 and args.classifier_dim:
        raise ConfigurationError(
            f"--classifier-dim {args.classifier_dim} has no effect because --classifier-layers is "
            f"1: drop it or give 2 or more layers"
        )

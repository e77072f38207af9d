"""What a sentence classifier may be told: one line for a flag that could have no effect."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from typing import Any, Dict, Iterator

from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_config import DecoderConfig
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_hasattr

from capsnmt.errors import ConfigurationError
from capsnmt.models.config import MultiLayerAttentionConfig, defaults, flag, switches
from capsnmt.models.validation import require
from capsnmt.sentences.config import SentenceClassifierConfig
from capsnmt.sentences.pooling import POOLINGS

# fairseq's options of the decoder that its names do not tell
OF_THE_DECODER = (
    *("max_target_positions", "share_decoder_input_output_embed", "share_all_embeddings"),
    *("merge_src_tgt_embed", "adaptive_input", "adaptive_softmax_cutoff"),
    *("adaptive_softmax_dropout", "adaptive_softmax_factor", "tie_adaptive_weights"),
    *("tie_adaptive_proj", "no_cross_attention", "cross_self_attention", "no_decoder_final_norm"),
    *("base_layers", "base_sublayers", "base_shuffle"),
)


def decoder_options() -> Dict[str, Any]:
    """Every option that a model without decoder leaves without effect, with its default."""
    options = {f"decoder_{option.name}": option.default for option in fields(DecoderConfig)}
    shared = {option.name: option.default for option in fields(TransformerConfig)}
    options.update({name: shared[name] for name in OF_THE_DECODER if name in shared})
    idle = [*switches(MultiLayerAttentionConfig), "head_aggregation_decoder_layers"]
    idle += [name for name in defaults() if name.startswith("capsule_routing_decoder")]
    options.update({name: defaults()[name] for name in idle})
    return options


def refuse_decoder(args: Namespace) -> None:
    """Raise where ``args`` asks for anything of a decoder, which is not there.

    It also accepts the ``args`` that were completed before, in which every option is set.

    Raises:
        ConfigurationError: a flag of the decoder or of encoder-decoder attention was given.
    """
    idle = decoder_options()
    expected = Namespace(**{k: v for k, v in vars(args).items() if k not in idle})
    base_architecture(expected)
    for name, default in idle.items():
        allowed = (default, getattr(expected, name, default))
        if safe_hasattr(args, name) and getattr(args, name) not in allowed:
            raise ConfigurationError(
                f"{flag(name)} {getattr(args, name)} has no effect: a sentence classifier has an "
                f"encoder only: drop it"
            )
    for name, word in _decoder_choices(args):
        raise ConfigurationError(
            f"{flag(name)} {getattr(args, name)}: a sentence classifier has an encoder only: "
            f"give {word} or drop the flag"
        )


def _decoder_choices(args: Namespace) -> Iterator[Any]:
    """The mechanisms' switches whose value means a decoder, with the one that does not."""
    aggregation = getattr(args, "layer_aggregation", "none")
    if getattr(args, "head_aggregation_attention", "enc-self") != "enc-self":
        yield "head_aggregation_attention", "enc-self"
    if aggregation == "transparent":
        yield "layer_aggregation", "linear, iterative, dynamic, dynamic-routing, em-routing"
    if aggregation != "none" and getattr(args, "layer_aggregation_side", "encoder") != "encoder":
        yield "layer_aggregation_side", "encoder"


def complete_classifier(args: Namespace, preset: Dict[str, Any]) -> None:
    """Fill in the classifier's switches, from the preset, else the default, and check them.

    Raises:
        ConfigurationError: a value is not allowed, or would have no effect.
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

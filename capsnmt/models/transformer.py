"""fairseq's Transformer, composable: each mechanism is a switch, all off is the Transformer."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Optional

import torch.nn as nn
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)

from capsnmt.models.config import MECHANISMS, aggregates_heads
from capsnmt.models.initialisation import initialise_from
from capsnmt.modules.attention import Attention
from capsnmt.modules.head_aggregation import HeadAggregation

# Copies of a layer's weights that fairseq 0.12.2 keeps for its evaluation fast path.
FAST_PATH_COPIES = tuple(
    f"{part}_{kind}"
    for part in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


def learned_parameters(model: nn.Module) -> Dict[str, nn.Parameter]:
    """The parameters of a Transformer, fairseq's own too, without fairseq 0.12.2's copies."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not (".layers." in name and name.rpartition(".")[2] in FAST_PATH_COPIES)
    }


def aggregate_heads(attention: Attention, cfg: Any, name: str, layer: int) -> None:
    """Put the head aggregation that ``cfg`` asks for in place of the output projection.

    After the layer's own construction, because fairseq 0.12.2's encoder layer reads the shape of
    ``out_proj.weight`` while it is built.
    """
    if aggregates_heads(cfg, name, layer):
        attention.out_proj = HeadAggregation(
            attention.embed_dim,
            attention.num_heads,
            routing=cfg.head_aggregation,
            num_capsules=cfg.head_capsules,
            iterations=cfg.routing_iterations,
            normalize=cfg.head_capsule_norm,
            backend=cfg.routing_backend,
        )


class TransformerEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer over our attention. ``number`` is 1 at the bottom."""

    # fairseq 0.12.2 would copy the weights for its fast path here, from an out_proj.weight that
    # a routed layer does not have; without that call the fast path stays off.
    _load_from_state_dict = nn.Module._load_from_state_dict

    def __init__(self, cfg: Any, number: int, return_fc: bool = False) -> None:
        super().__init__(cfg, return_fc=return_fc)
        for name in FAST_PATH_COPIES:
            self._parameters.pop(name, None)
        aggregate_heads(self.self_attn, cfg, "enc-self", number)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return Attention(
            embed_dim,
            cfg.encoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        """Also drop the copies that a checkpoint of fairseq 0.12.2's own Transformer holds."""
        super().upgrade_state_dict_named(state_dict, name)
        for copy in FAST_PATH_COPIES:
            state_dict.pop(f"{name}.{copy}", None)


class TransformerDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer over our attention. ``number`` is 1 at the bottom."""

    def __init__(self, cfg: Any, number: int, no_encoder_attn: bool = False) -> None:
        super().__init__(cfg, no_encoder_attn)
        aggregate_heads(self.self_attn, cfg, "dec-self", number)
        if self.encoder_attn is not None:
            aggregate_heads(self.encoder_attn, cfg, "enc-dec", number)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> Attention:
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError("capsnmt attention has no bias or zero keys")
        return Attention(
            embed_dim,
            cfg.decoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=not cfg.cross_self_attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return Attention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Activation checkpointing and sharding, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # a checkpointed layer is always a shard of its own, whatever its size
    return fsdp_wrap(
        layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    )


class TransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder over our layers."""

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        layer = TransformerEncoderLayer(cfg, next(self.numbers), return_fc=self.return_fc)
        return wrap_layer(layer, cfg)


class TransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder over our layers."""

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(TransformerDecoderLayer(cfg, next(self.numbers), no_encoder_attn), cfg)


@register_model("capsnmt_transformer")
class CapsnmtTransformer(TransformerModel):
    """The one model of the plugin; its architectures are presets of its switches.

    With every switch off it is fairseq's ``transformer``: same parameters under the same names,
    same outputs, and stock checkpoints load.
    """

    @classmethod
    def add_args(cls, parser: Any) -> None:
        super().add_args(parser)
        for group in MECHANISMS:
            # no defaults: an absent attribute tells presets what the user left open
            gen_parser_from_dataclass(parser, group(), delete_default=True)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> nn.Module:
        model = super().build_model(args, task)
        checkpoint: Optional[str] = args.init_from
        if checkpoint:
            initialise_from(model, checkpoint)
            # Only training starts from there: a model that is built again for generation gets its
            # own checkpoint, on a machine that may not have this one. args is saved with it.
            args.init_from = None
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> TransformerEncoder:
        return TransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> TransformerDecoder:
        return TransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

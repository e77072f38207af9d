"""fairseq's encoder and decoder layers with the attentions chosen by the switches."""

from __future__ import annotations

import functools
from typing import Any, Dict

import torch.nn as nn
from fairseq.distributed import fsdp_wrap
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)

from capsnmt.models.selection import aggregates_heads, routes_scores
from capsnmt.modules.attention import Attention, BlockAttention
from capsnmt.modules.autocast import run_in_autocast
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.disagreement import checkpoint_layer
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.multi_layer_attention import MultiLayerAttention

# fairseq 0.12.2's copies of a layer's weights for its evaluation fast path.
FAST_PATH_COPIES = tuple(
    f"{part}_{kind}"
    for part in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


def learned_parameters(model: nn.Module) -> Dict[str, nn.Parameter]:
    """Return the named parameters of a Transformer without fairseq 0.12.2's weight copies."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not (".layers." in name and name.rpartition(".")[2] in FAST_PATH_COPIES)
    }


def finish_attention(attention: Attention, cfg: Any, role: str, layer: int) -> None:
    """Set the attention's role and build the aggregation of its heads.

    Call it after the layer is built: fairseq 0.12.2's encoder layer reads the shape of
    ``out_proj.weight`` in its constructor, and routing has no such weight.
    """
    attention.role = role
    if not aggregates_heads(cfg, role, layer):
        return
    if cfg.head_aggregation == "gated":
        noise = cfg.quant_noise
        attention.head_gate = HeadGate(
            attention.embed_dim, attention.call_heads(), noise.pq, noise.pq_block_size
        )
    elif cfg.head_aggregation == "talking":
        attention.score_mixing = HeadMixing(attention.call_heads())
        attention.weight_mixing = HeadMixing(attention.call_heads())
    else:
        attention.out_proj = HeadRouting(
            attention.embed_dim,
            attention.num_heads,
            routing=cfg.head_aggregation,
            num_capsules=cfg.head_capsules,
            iterations=cfg.routing_iterations,
            normalize=cfg.head_capsule_norm,
            backend=cfg.routing_backend,
            input_dim=attention.out_proj.in_features,
        )


def self_attention(cfg: Any, side: str, layer: int, **settings: Any) -> Attention:
    """Build the self-attention of a layer (1-based) of the encoder or decoder."""
    stack, routing = getattr(cfg, side), getattr(cfg, f"capsule_routing_{side}")
    settings.update(dropout=cfg.attention_dropout)
    if not routes_scores(cfg, side, layer):
        return Attention(stack.embed_dim, stack.attention_heads, **settings)
    return CapsuleAttention(
        stack.embed_dim,
        stack.attention_heads,
        vertical=routing in ("vertical", "both"),
        horizontal=routing in ("horizontal", "both"),
        iterations=cfg.routing_iterations,
        backend=cfg.routing_backend,
        **settings,
    )


class TransformerEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer with our attention. ``number`` is 1 at the bottom."""

    # fairseq 0.12.2 would copy the weights for its fast path here, from an out_proj.weight that a
    # routed layer does not have. Without the copies the fast path stays off.
    _load_from_state_dict = nn.Module._load_from_state_dict

    def __init__(self, cfg: Any, number: int, return_fc: bool = False) -> None:
        self.number = number
        super().__init__(cfg, return_fc=return_fc)
        for name in FAST_PATH_COPIES:
            self._parameters.pop(name, None)
        self.BT_version = False
        finish_attention(self.self_attn, cfg, "enc-self", number)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> Attention:
        noise = {"q_noise": self.quant_noise, "qn_block_size": self.quant_noise_block_size}
        return self_attention(cfg, "encoder", self.number, **noise)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        """Also drop the weight copies in checkpoints of fairseq 0.12.2's own Transformer."""
        super().upgrade_state_dict_named(state_dict, name)
        for copy in FAST_PATH_COPIES:
            state_dict.pop(f"{name}.{copy}", None)


class TransformerDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer with our attention. ``number`` is 1 at the bottom."""

    def __init__(self, cfg: Any, number: int, no_encoder_attn: bool = False) -> None:
        self.number = number
        super().__init__(cfg, no_encoder_attn)
        finish_attention(self.self_attn, cfg, "dec-self", number)
        if self.encoder_attn is not None:
            finish_attention(self.encoder_attn, cfg, "enc-dec", number)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> Attention:
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError("capsnmt attention has no bias or zero keys")
        noise = {"q_noise": self.quant_noise, "qn_block_size": self.quant_noise_block_size}
        if cfg.cross_self_attention:
            noise["self_attention"] = False
        return self_attention(cfg, "decoder", self.number, **noise)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> Attention:
        settings: Dict[str, Any] = {"dropout": cfg.attention_dropout}
        heads, source_dim = cfg.decoder.attention_heads, cfg.encoder.embed_dim
        if cfg.mlmha != "none":
            sources = cfg.mlmha_sources or cfg.encoder.layers
            return MultiLayerAttention(
                embed_dim, heads, sources, cfg.mlmha, source_dim=source_dim, **settings
            )
        settings.update(kdim=source_dim, vdim=source_dim, encoder_decoder_attention=True)
        settings.update(q_noise=self.quant_noise, qn_block_size=self.quant_noise_block_size)
        if cfg.layer_aggregation == "transparent":
            return BlockAttention(embed_dim, heads, block=self.number - 1, **settings)
        return Attention(embed_dim, heads, **settings)


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Apply activation checkpointing and sharding, as fairseq does to its own layers."""
    if cfg.checkpoint_activations:
        if cfg.autocast != "none":  # the backward pass runs the layer again, outside of the stack
            norm = layer.final_layer_norm  # fp32 also where the linear maps are converted
            layer.forward = functools.partial(run_in_autocast, layer.forward, norm, cfg.autocast)
        layer = checkpoint_layer(layer, offload_to_cpu=cfg.offload_activations)
    # a checkpointed layer is always a separate shard, whatever its size
    return fsdp_wrap(
        layer, min_num_params=0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    )

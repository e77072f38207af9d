"""fairseq's decoder with the mechanisms chosen by the switches."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn as nn
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from capsnmt.models.compilation import Forward, compiled, make_compilable, runs_compiled
from capsnmt.models.layers import TransformerDecoderLayer, wrap_layer
from capsnmt.models.stacks import stack_aggregation, stack_connection
from capsnmt.modules.attention import IncrementalState
from capsnmt.modules.autocast import autocast_of
from capsnmt.modules.dropout import replace_dropout
from capsnmt.modules.stack_layers import DecoderLayers


class TransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with our layers, their connections and their aggregation.

    **D**: where the stack ends with a LayerNorm (pre-norm), it is applied to each layer's output.
    """

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers
        self.autocast: str = cfg.autocast
        self.layer_aggregation = stack_aggregation(cfg, "decoder")
        self.connection = stack_connection(cfg, "decoder")
        self.compiles: bool = cfg.compile
        if self.compiles:
            make_compilable(self)
            self.reads_source: bool = self.cross_self_attention
        reads_all_layers = self.layer_aggregation is not None
        if self.connection is not None or (reads_all_layers and self.decoder_layerdrop > 0):
            self.layers: nn.ModuleList = DecoderLayers(
                self.decoder_layerdrop, self.layers.children(), self.connection
            )
        replace_dropout(self)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]] = None,
        incremental_state: Optional[IncrementalState] = None,
        features_only: bool = False,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        src_lengths: Optional[Any] = None,
        return_all_hiddens: bool = False,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Decode under ``--autocast``; it includes the output projection."""
        if torch.jit.is_scripting():  # in which there is no super()
            x, extra = self.extract_features(
                prev_output_tokens,
                encoder_out,
                incremental_state,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
            )
            return x if features_only else self.output_layer(x), extra
        decode = TransformerDecoderBase.forward
        if self.compiles:
            decode = self.compilation(decode, prev_output_tokens.size(1))
        with autocast_of(self, self.autocast):
            return decode(
                self,
                prev_output_tokens,
                encoder_out,
                incremental_state,
                features_only,
                full_context_alignment,
                alignment_layer,
                alignment_heads,
                src_lengths,
                return_all_hiddens,
            )

    def compilation(self, forward: Forward, length: int) -> Forward:
        """Return the host's forward function for targets of this length, compiled or not."""
        compiles = runs_compiled(self)
        # on this condition, the host masks padding without looking whether there is any
        self.cross_self_attention = compiles or self.reads_source
        if not compiles:
            return forward
        if length > self._future_mask.size(0):  # a graph that enlarged it would be another graph
            self.buffered_future_mask(self.embed_tokens.weight.new_empty(max(512, 2 * length), 0))
        return compiled(forward)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(TransformerDecoderLayer(cfg, next(self.numbers), no_encoder_attn), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[IncrementalState] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        features, extra = self.extract_features_scriptable(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )
        if self.layer_aggregation is not None:
            states: List[Tensor] = []
            for state in extra["inner_states"][1:]:
                assert state is not None
                states.append(state if self.layer_norm is None else self.layer_norm(state))
            features = self.layer_aggregation(states).transpose(0, 1)  # batch first, as the host
            if self.project_out_dim is not None:
                features = self.project_out_dim(features)
        return features, extra

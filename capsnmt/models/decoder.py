"""fairseq's decoder with the mechanisms chosen by the switches."""

from typing import Any, Dict, List, Optional, Tuple

from fairseq.models.transformer import TransformerDecoderBase
from fairseq.utils import safe_getattr
from torch import Tensor, nn

from capsnmt.models.attention import IncrementalState
from capsnmt.models.compilation import compiled, runs_compiled
from capsnmt.models.layers import TransformerDecoderLayer
from capsnmt.models.precision import autocast_of
from capsnmt.models.stacks import Stack, attention_masks, kept_layers, reads_padding, run_layer
from capsnmt.modules.overrides import inherits
from capsnmt.routing.tracing import is_traced


def by_hypothesis(encoded: Dict[str, List[Tensor]], rows: int) -> Dict[str, List[Tensor]]:
    """Return an encoding of sentences with a row for each of their hypotheses, as the host's."""
    dims = {"encoder_out": 1, "encoder_padding_mask": 0, "encoder_embedding": 0}
    beam = rows // max(1, encoded["encoder_out"][0].size(1)) if encoded["encoder_out"] else 1
    if beam == 1:
        return encoded
    repeated = encoded.copy()
    for name in dims.keys() & encoded.keys():
        repeated[name] = [x.repeat_interleave(beam, dims[name]) for x in encoded[name]]
    return repeated


class TransformerDecoder(Stack, TransformerDecoderBase):
    """fairseq's decoder with our layers, their connections and their aggregation."""

    side = "decoder"

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        # fairseq's criterion with alignments also reads the weights of the top layer in training
        self.learns_alignment = bool(safe_getattr(cfg, "load_alignments", False))

    def forward(
        self, prev_output_tokens: Tensor, encoder_out: Any = None, *inputs: Any, **settings: Any
    ) -> Any:
        """Decode as the host, under ``--autocast``; it includes the output projection."""
        if encoder_out is not None and self.has_own_passes():
            encoder_out = by_hypothesis(encoder_out, len(prev_output_tokens))
        decode = TransformerDecoderBase.forward
        if runs_compiled(self):
            length = prev_output_tokens.size(1)
            if length > self._future_mask.size(0):  # a graph that enlarged it would be another one
                size = max(512, 2 * length)
                self.buffered_future_mask(self.embed_tokens.weight.new_empty(size, 0))
            decode = compiled(decode)
        with autocast_of(self, self.autocast):
            return decode(self, prev_output_tokens, encoder_out, *inputs, **settings)

    def has_own_passes(self) -> bool:
        """Return whether a user's method, which may read the encoding, decodes the features."""
        ours = next(each for each in type(self).__mro__ if each.__module__.startswith("capsnmt."))
        return not inherits(self, ours, "extract_features", "extract_features_scriptable")

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        """Also drop the projection that fairseq adds for shared embeddings, if there is none."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.output_projection is None:  # an adaptive softmax
            state_dict.pop(f"{name}.output_projection.weight", None)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return TransformerDecoderLayer(cfg, next(self.numbers), no_encoder_attn)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[IncrementalState] = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Decode as the host, with the connection and the aggregation of the layers."""
        if alignment_layer is None and (self.learns_alignment or not self.training):
            alignment_layer = self.num_layers - 1
        encoded: Optional[Tensor] = None
        encoded_padding: Optional[Tensor] = None
        if encoder_out is not None:
            own = self.has_own_layers()
            if own:  # a user's part may read a row for each hypothesis
                encoder_out = by_hypothesis(encoder_out, len(prev_output_tokens))
            # cross+self-attention appends the padding of the words
            plain = own or self.cross_self_attention
            masks = encoder_out["encoder_padding_mask"] if plain else attention_masks(encoder_out)
            encoded = [*encoder_out["encoder_out"], None][0]
            encoded_padding = [*masks, None][0]
        x = embedding = self.embed(prev_output_tokens, incremental_state)
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
        padding = prev_output_tokens.eq(self.padding_idx)
        future: Optional[Tensor] = None
        hides = padding
        if incremental_state is None and not full_context_alignment:
            future = self.buffered_future_mask(x)
            if not is_traced():  # a graph has a mask of padding, and reads both
                future.is_causal = True  # which no mask of a user's own loop over the layers says
            hides = padding[:, :-1] & ~padding[:, 1:]  # a word sees no padding on its right
        masked = self.cross_self_attention or reads_padding(hides)
        # with a mask of padding, attention also reads what else hides or changes scores
        masked = masked or (future is not None and self.has_own_mask())
        attn: Optional[Tensor] = None
        inner_states = [embedding]
        below: List[Tensor] = []
        if self.connection is not None:
            x = self.connection.follow(x, below)
        kept = kept_layers(len(self.layers), float(self.decoder_layerdrop), self.training)
        for number, layer in enumerate(self.layers):
            aligns = number == alignment_layer
            x, *others = run_layer(
                *(layer, kept[number], self.connection, below),
                *(x, encoded, encoded_padding, incremental_state),
                self_attn_mask=future,
                self_attn_padding_mask=padding if masked else None,
                need_attn=aligns,
                need_head_weights=aligns,
            )
            if aligns and others and others[0] is not None:
                attn = others[0].float().to(x)
            inner_states.append(x)
        if attn is not None:
            attn = (attn if alignment_heads is None else attn[:alignment_heads]).mean(dim=0)
        if self.layer_aggregation is None:
            (x,) = self.normalise([x])
        else:
            x = self.layer_aggregation(self.normalise(inner_states[1:]))
        x = x.transpose(0, 1)  # batch first, as the host
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        features = x.type_as(embedding)  # an adaptive softmax reads them outside of --autocast
        return features, {"attn": [attn], "inner_states": inner_states}

    def has_own_mask(self) -> bool:
        """Return whether a user's decoder, layers, attentions or hooks may mask more."""
        ours = inherits(self, TransformerDecoderBase, "buffered_future_mask")
        return not ours or self.has_own_layers()

    def embed(self, tokens: Tensor, incremental_state: Optional[IncrementalState]) -> Tensor:
        """Return the embeddings ``[T, B, d]`` of the words; in a step of decoding, of the last."""
        positions: Optional[Tensor] = None
        if self.embed_positions is not None:
            positions = self.embed_positions(tokens, incremental_state=incremental_state)
        if incremental_state is not None:
            tokens = tokens[:, -1:]
            if positions is not None:
                positions = positions[:, -1:]
        x = self.embed_scale * self.embed_tokens(tokens.contiguous())
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x).transpose(0, 1)

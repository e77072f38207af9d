"""fairseq's encoder with the mechanisms chosen by the switches."""

import functools
from typing import Any, Dict, List, Optional

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.models.compilation import compiled, runs_compiled
from capsnmt.models.layers import TransformerEncoderLayer
from capsnmt.models.precision import autocast_of
from capsnmt.models.stacks import Stack, attention_masks, kept_layers, reads_padding, run_layer
from capsnmt.modules.autocast import autocast_dtype, bf16_obstacle
from capsnmt.modules.cache import sentence_order, stays
from capsnmt.modules.layer_aggregation import TransparentMixture
from capsnmt.modules.masks import additive_padding
from capsnmt.routing.backend import backend_obstacle, compile_obstacle


class TransformerEncoder(Stack, TransformerEncoderBase):
    """fairseq's encoder with our layers, their connections and their aggregation.

    The output is ``[T, B, n d]`` instead of the top layer's ``[T, B, d]``: the concatenated
    features of all sources of multi-layer attention, or of all mixtures of transparent attention.
    It is one tensor, so everything that the host does to an encoder's output remains correct.
    """

    side = "encoder"

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        self.routing_backend: str = cfg.routing_backend
        self.transparent: Optional[TransparentMixture] = None
        if cfg.layer_aggregation == "transparent":
            self.transparent = TransparentMixture(cfg.encoder.layers + 1, cfg.decoder.layers)
        self.num_sources = 1
        if cfg.mlmha != "none":
            self.num_sources = cfg.mlmha_sources or cfg.encoder.layers
        self.masked_source: int = cfg.mlmha_mask_source
        # cross+self-attention joins the encoding to the words of each hypothesis
        self.repeats_sentences: bool = cfg.cross_self_attention

    @property
    def reads_all_layers(self) -> bool:
        """Whether the decoder receives anything other than the top layer's output."""
        aggregates = self.layer_aggregation is not None or self.transparent is not None
        return aggregates or self.num_sources > 1 or self.masked_source > 0

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return TransformerEncoderLayer(cfg, next(self.numbers), self.return_fc)

    def train(self, mode: bool = True) -> "TransformerEncoder":
        if mode:
            device = next(self.parameters()).device.type
            only = "only generation masks sources, by --model-overrides"
            obstacles = {
                f"--mlmha-mask-source {self.masked_source}": only if self.masked_source else None,
                "--autocast bf16": bf16_obstacle(device) if self.autocast == "bf16" else None,
                "--compile": compile_obstacle(device) if self.compiles else None,
                f"--routing-backend {self.routing_backend}": backend_obstacle(
                    self.routing_backend, device
                ),
            }
            for flag, obstacle in obstacles.items():
                if obstacle is not None:
                    raise ConfigurationError(f"{flag}: {obstacle}; train without it")
        return super().train(mode)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode under ``--autocast``; the output is as precise as the embedding."""
        encode = self.forward_scriptable
        if runs_compiled(self):
            encode = functools.partial(compiled(type(self).forward_scriptable), self)
        with autocast_of(self, self.autocast):
            encoded = encode(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        encoded["encoder_out"] = [
            encoded["encoder_out"][0].type_as(encoded["encoder_embedding"][0])
        ]
        return encoded

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Tensor]]:
        """Encode as the host, with what the decoder reads.

        The host's asks before every layer whether there is padding, for which a GPU must wait each
        time, and no graph can be compiled. Here encoder and decoder share one mask, or none.
        """
        padding = src_tokens.eq(self.padding_idx)
        masks: List[Tensor] = []
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)
        if reads_padding(padding):
            of_scores = autocast_dtype(x.device.type) or x.dtype
            own = self.has_own_layers()  # which know it as the host's
            masks.append(padding if own else additive_padding(padding, of_scores))
        mask = masks[0] if masks else None
        x = (x * (1 - padding.unsqueeze(-1).type_as(x))).transpose(0, 1)
        states: List[Tensor] = [x]
        fc_results: List[Tensor] = []
        below: List[Tensor] = []
        if self.connection is not None:
            x = self.connection.follow(x, below)
        kept = kept_layers(len(self.layers), float(self.encoder_layerdrop), self.training)
        for layer, runs in zip(self.layers, kept):
            x, *fc_result = run_layer(layer, runs, self.connection, below, x, mask)
            fc_results += fc_result if return_all_hiddens else []
            if not (return_all_hiddens or self.reads_all_layers):
                states.clear()
            states.append(x)
        return {
            "encoder_out": [self.hand_over(states)],
            "encoder_padding_mask": [padding],
            "attention_mask": [*masks, padding],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else [],
            "fc_results": fc_results,
            "src_tokens": [],
            "src_lengths": [(~padding).sum(dim=1, dtype=torch.int32).reshape(-1, 1)],
        }

    def reorder_encoder_out(
        self, encoder_out: Dict[str, List[Tensor]], new_order: Tensor
    ) -> Dict[str, List[Tensor]]:
        """Reorder an encoded batch in beam search; each sentence is kept once for its hypotheses.

        The host first repeats each sentence for its hypotheses, and then copies all of them in
        every step. Here nothing is repeated, and on a CPU nothing is copied unless a sentence
        moves. ``beam``, once there is one, has as many rows as a sentence has hypotheses.
        """
        sentences = encoder_out["encoder_out"][0].size(1)
        repeats = new_order.size(0) // max(1, sentences)
        if repeats > 1 and not self.repeats_sentences and "beam" not in encoder_out:
            places = torch.arange(sentences, device=new_order.device)
            if torch.equal(new_order, places.repeat_interleave(repeats)):
                encoder_out = encoder_out.copy()
                encoder_out["beam"] = [new_order[:repeats]]
                return encoder_out
        order = new_order
        if "beam" in encoder_out:
            beam = encoder_out["beam"][0].size(0)
            order = sentence_order(new_order, beam)
            rows = torch.div(new_order, beam, rounding_mode="floor")
            if rows.device.type == "cpu" and not torch.equal(rows, order.repeat_interleave(beam)):
                raise ValueError(
                    f"reorder_encoder_out: the hypotheses of a sentence, {beam} each, must stay "
                    "together"
                )
        if stays(order, sentences):
            return encoder_out
        reordered = super().reorder_encoder_out(encoder_out, order)
        masks = attention_masks(encoder_out)
        if masks is not encoder_out["encoder_padding_mask"]:
            reordered["attention_mask"] = [mask.index_select(0, order) for mask in masks]
            reordered["attention_mask"] += reordered["encoder_padding_mask"]
        if "beam" in encoder_out:
            reordered["beam"] = encoder_out["beam"]
        return reordered

    def hand_over(self, states: List[Tensor]) -> Tensor:
        """Return the decoder's input, ``[T, B, n d]``, from the embeddings and H^1..H^L."""
        if self.reads_all_layers:
            return self.combine(self.normalise(states))
        return self.normalise(states[-1:])[0]

    def combine(self, states: List[Tensor]) -> Tensor:
        """Return the decoder's input, ``[T, B, n d]``, from normalised states."""
        if self.transparent is not None:
            return self.transparent(states)
        sources = states[1:]
        if self.layer_aggregation is not None:
            sources[-1] = self.layer_aggregation(sources)
        if self.masked_source:
            sources[self.masked_source - 1] = torch.zeros_like(sources[self.masked_source - 1])
        return torch.cat(sources[-self.num_sources :], dim=-1)

"""The steps of a decoder without mechanisms in beam search on a CPU."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Sequence, Set, Tuple

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from capsnmt.fast.derived import Sources
from capsnmt.fast.linear import PreparedLinear
from capsnmt.fast.search.decoding import attend
from capsnmt.models.attention import PROJECTIONS, HostedAttention
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.dropout import RetainedDropout
from capsnmt.models.layers import HostLayer, TransformerDecoderLayer
from capsnmt.models.overrides import PROBABILITIES, hooked, inherits
from capsnmt.modules.masks import additive_padding
from capsnmt.modules.observation import open_observer
from capsnmt.routing.tracing import is_followed

KeysValues = Tuple[Tensor, Tensor]  # [B, H, T, d_h] each

FIRST_SLOTS = 64
MAPS = (nn.Linear, PreparedLinear)
# what a Transformer consists of, in fairseq's names
DECODER_PARTS = {
    *("version", "embed_tokens", "embed_positions", "layernorm_embedding"),
    *("layers", "layer_norm", "output_projection"),
}
LAYER_PARTS = {
    *("self_attn", "self_attn_layer_norm", "encoder_attn", "encoder_attn_layer_norm"),
    *("fc1", "fc2", "final_layer_norm"),
}
Made = Tuple[List[Any], Sources, "PlainDecoder"]
MADE: weakref.WeakKeyDictionary[nn.Module, Made] = weakref.WeakKeyDictionary()


def is_plain(model: nn.Module) -> bool:
    """Return whether the decoder of a model prepared for decoding is a plain Transformer's."""
    decoder = getattr(model, "decoder", None)
    return (
        type(decoder) is TransformerDecoder
        and parts(decoder) <= DECODER_PARTS
        and inherits(decoder, TransformerDecoderBase, "output_layer", *PROBABILITIES)
        and inherits(model, TransformerModelBase, *PROBABILITIES)
        and type(decoder.embed_tokens) is nn.Embedding
        and getattr(model, "is_prepared", False)
        and decoder.embed_tokens.weight.dtype in (torch.float32, torch.float64)
        and decoder.embed_tokens.weight.device.type == "cpu"
        and isinstance(decoder.output_projection, nn.Linear)
        and len(decoder.layers) > 0
        and not decoder.training
        and not decoder.cross_self_attention
        and open_observer() is None
        and not any(watched(module) for module in decoder.modules())
        and not is_followed([*decoder.parameters()])
        and all(plain_layer(layer) for layer in decoder.layers)
    )


def watched(module: nn.Module) -> bool:
    """Return whether a module does more than its class says.

    A hook waits for its passes, dropout is on (--retain-dropout), or it has a method of its own.
    """
    if hooked(module):
        return True
    own = (name for name, value in vars(module).items() if callable(value))
    retained = getattr(module, "apply_during_inference", False)
    return retained or any(hasattr(type(module), name) for name in own)


def parts(module: nn.Module) -> Set[str]:
    """Return the names of a module's own parts, without dropout, which does nothing here."""
    own = {**module._modules, **module._parameters, **module._buffers}
    dropped = (type(None), RetainedDropout)
    return {name for name, part in own.items() if type(part) not in dropped}


def plain_layer(layer: nn.Module) -> bool:
    """Return whether a layer and its attentions are those of a plain Transformer."""
    return (
        type(layer) is TransformerDecoderLayer
        and parts(layer) == LAYER_PARTS
        and inherits(layer, HostLayer, "forward", "run")
        and inherits(layer, TransformerDecoderLayerBase, "residual_connection")
        and all(
            type(attention) is HostedAttention
            and parts(attention) == {*PROJECTIONS}
            and all(type(getattr(attention, name)) in MAPS for name in PROJECTIONS)
            for attention in (layer.self_attn, layer.encoder_attn)
        )
    )


class PlainDecoder:
    """The steps of a decoder, which joins some of its parameters."""

    def __init__(self, decoder: TransformerDecoder) -> None:
        self.embedding: Tensor = decoder.embed_tokens.weight
        self.scale: float = decoder.embed_scale
        self.places = decoder.embed_positions
        self.positions: Dict[int, Tensor] = {}
        self.input_norm, self.norm = decoder.layernorm_embedding, decoder.layer_norm
        self.layers = [PlainLayer(layer) for layer in decoder.layers]
        self.heads: int = decoder.layers[0].self_attn.num_heads
        self.output: nn.Module = decoder.output_projection

    @classmethod
    def of(cls, decoder: TransformerDecoder) -> PlainDecoder:
        """Return the plain decoder of a model, made once for its parameters and settings."""
        read = [decoder.embed_scale, decoder.embed_positions]
        for layer in decoder.layers:
            read += [layer.self_attn.scaling, layer.encoder_attn.scaling]
            read += [layer.activation_fn, layer.normalize_before]
        made = MADE.get(decoder)
        if made is None or made[0] != read or not made[1].are(decoder.parameters()):
            sources = Sources(decoder.parameters())
            with torch.inference_mode(False), torch.no_grad():  # it also serves other modes
                made = MADE[decoder] = read, sources, cls(decoder)
        return made[2]

    def position(self, step: int) -> Tensor:
        """Return the embedding ``[1, d]`` of a position, 0 at the start."""
        if step not in self.positions:  # several threads may write the same
            words = self.embedding.new_full((1, step + 1), -1, dtype=torch.long)  # no padding
            self.positions[step] = self.places(words, incremental_state={})[0, -1:]
        return self.positions[step]

    def step(self, step: int, words: Tensor, memory: Memory, mask: Tensor) -> Tensor:
        """Return logits ``[B k, V]`` of the words after the last ones ``[B, k]``.

        ``mask`` ``[B, k, S]`` is 0 at the slots of each hypothesis, its new one included.
        """
        x = F.embedding(words.flatten(), self.embedding) * self.scale
        x = x if self.places is None else x + self.position(step)
        x = x if self.input_norm is None else self.input_norm(x)
        memory.reserve(mask.size(-1))
        for layer, words_seen, source in zip(self.layers, memory.words, memory.source):
            x = layer.step(x, words_seen, mask, source, memory.mask)
        x = x if self.norm is None else self.norm(x)
        logits = self.output.forward(x)
        return logits.float() if logits.dtype == torch.bfloat16 else logits


class PlainLayer:
    """A step of a decoder layer. Maps of one input are one map, and queries are scaled by it."""

    def __init__(self, layer: Any) -> None:
        own, cross = layer.self_attn, layer.encoder_attn
        self.own = joined((own.q_proj, own.scaling), (own.k_proj, 1), (own.v_proj, 1))
        self.query = joined((cross.q_proj, cross.scaling))
        self.source = joined((cross.k_proj, 1), (cross.v_proj, 1))
        self.own_output, self.cross_output = own.out_proj, cross.out_proj
        self.fc1, self.fc2, self.activation = layer.fc1, layer.fc2, layer.activation_fn
        self.own_norm, self.cross_norm = layer.self_attn_layer_norm, layer.encoder_attn_layer_norm
        self.norm, self.normalises_before = layer.final_layer_norm, layer.normalize_before

    def step(
        self, x: Tensor, words: KeysValues, mask: Tensor, source: KeysValues, source_mask: Tensor
    ) -> Tensor:
        """Return the layer's output ``[B k, d]``, and add keys and values of x to ``words``."""
        y = self.before(self.own_norm, x)
        y = attend(self.own.forward(y), *words, mask, appends=True)
        x = self.after(self.own_norm, x, self.own_output.forward(y))
        y = self.before(self.cross_norm, x)
        y = attend(self.query.forward(y), *source, source_mask, appends=False)
        x = self.after(self.cross_norm, x, self.cross_output.forward(y))
        y = self.before(self.norm, x)
        y = self.fc2.forward(self.activation(self.fc1.forward(y)))
        return self.after(self.norm, x, y)

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Return the input of a sublayer."""
        return norm.forward(x) if self.normalises_before else x

    def after(self, norm: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the output of a sublayer that computes y of x."""
        x = x + y
        return x if self.normalises_before else norm.forward(x)


def joined(*maps: Tuple[Any, float]) -> nn.Linear:
    """Return several maps of one input, each scaled, as one of their kind."""
    weight = torch.cat([each.weight * scale for each, scale in maps])
    one = object.__new__(type(maps[0][0]))
    nn.Module.__init__(one)  # without first numbers; on "meta" torch 2.2 would import sympy
    one.weight = nn.Parameter(weight, requires_grad=False)
    bias = torch.cat([each.bias * scale for each, scale in maps])
    one.bias = nn.Parameter(bias, requires_grad=False)
    return one


class Memory:
    """What the hypotheses of a batch attend to, for each layer: source and words of a sentence."""

    def __init__(self, decoder: PlainDecoder, encoded: Dict[str, List[Tensor]]) -> None:
        source = encoded["encoder_out"][0].transpose(0, 1)  # [B, T, d]
        padding = encoded["encoder_padding_mask"][0]
        self.mask = additive_padding(padding, source.dtype).unsqueeze(1)
        self.source: List[KeysValues] = []
        for layer in decoder.layers:
            keys, values = layer.source.forward(source).chunk(2, dim=-1)
            self.source.append((by_head(keys, decoder.heads), by_head(values, decoder.heads)))
        keys = self.source[0][0]
        self.words = [(keys[:, :, :0], keys[:, :, :0])] * len(decoder.layers)

    def reserve(self, slots: int) -> None:
        """Make room for so many slots of each sentence."""
        room = self.words[0][0].size(2)
        if slots > room:
            more = max(FIRST_SLOTS, 2 * room, slots)  # a search begins with a slot a hypothesis
            self.words = [tuple(enlarged(x, more) for x in pair) for pair in self.words]

    def move(self, free: Sequence[int], last: Sequence[int], count: int) -> None:
        """Move the last sentences into free places, and keep so many."""
        tensors = [x for pair in (*self.source, *self.words) for x in pair]
        for tensor in [self.mask, *tensors] if free else []:
            tensor[free] = tensor[last]
        self.mask = self.mask[:count]
        self.source, self.words = (
            [tuple(x[:count] for x in pair) for pair in pairs]
            for pairs in (self.source, self.words)
        )


def by_head(x: Tensor, heads: int) -> Tensor:
    """Return ``[B, T, d]`` as ``[B, H, T, d_h]``, in fp32 or more."""
    x = x.float() if x.dtype == torch.bfloat16 else x
    return x.unflatten(-1, (heads, -1)).transpose(1, 2).contiguous()


def enlarged(x: Tensor, room: int) -> Tensor:
    """Return ``[B, H, T, d_h]`` with more places T."""
    larger = x.new_empty(*x.shape[:2], room, x.size(-1))
    larger[:, :, : x.size(2)] = x
    return larger

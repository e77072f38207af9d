"""The multi-head attention shared by all mechanisms."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from capsnmt.modules.autocast import convert_once
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing
from capsnmt.modules.observation import observe, reads_weights
from capsnmt.modules.plain_attention import plain_is_faster

IncrementalState = Dict[str, Dict[str, Optional[Tensor]]]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Reshape ``[length, batch, d]`` to ``[batch, heads, length, d / heads]``."""
    length, batch, _ = x.shape
    return x.reshape(length, batch, num_heads, -1).permute(1, 2, 0, 3)


def join_heads(x: Tensor) -> Tensor:
    """Reshape ``[batch, heads, length, d / heads]`` to ``[length, batch, d]``."""
    batch, _, length, _ = x.shape
    return x.permute(2, 0, 1, 3).reshape(length, batch, -1)


def additive_mask(
    attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], like: Tensor
) -> Optional[Tensor]:
    """Merge fairseq's two masks into one additive mask, broadcastable to ``[B, H, L, K]``.

    Masked scores are lowered by half the range of the dtype, not by infinity. The softmax of a row
    that is masked completely (for example at a padded target position) is then an average that
    nothing reads; a softmax over infinities would be NaN and spoil every gradient. Half of the
    range, so that fp16 cannot overflow.

    Args:
        attn_mask: ``[L, K]``, added to the scores (``-inf`` where attention is not allowed).
        key_padding_mask: ``[B, K]``, nonzero at padding.
        like: a tensor of the scores' dtype and device.
    """
    lowest = torch.finfo(like.dtype).min / 2
    mask: Optional[Tensor] = None
    if attn_mask is not None:
        mask = attn_mask.to(like).clamp(min=lowest)[None, None]
    if key_padding_mask is not None:
        padding = key_padding_mask.to(device=like.device, dtype=torch.bool)[:, None, None, :]
        mask = like.new_zeros(()) if mask is None else mask
        mask = mask.masked_fill(padding, lowest)
    return mask


def sentence_order(new_order: Tensor, beam: int) -> Tensor:
    """Return the order of the sentences in a new order of their hypotheses, ``beam`` each.

    **D**: the hypotheses of a sentence stay together, as in every search of fairseq.
    """
    return torch.div(new_order[::beam], beam, rounding_mode="floor")


def stays(order: Tensor, rows: int) -> bool:
    """Return whether an order of so many rows is theirs; a GPU, which must wait, does not look."""
    return order.device.type == "cpu" and torch.equal(order, torch.arange(rows))


class Attention(MultiheadAttention):
    r"""Multi-head attention (Vaswani et al. 2017, section 3.2) with replaceable steps.

    ``project`` returns queries, keys and values per head (and maintains the incremental state),
    ``attend`` computes :math:`O_h = \mathrm{softmax}(Q_h K_h^\top / \sqrt{d_h}) V_h`, and
    ``out_proj`` aggregates the heads. ``out_proj`` is called as a module, so another module can
    take its place; fairseq's own forward reads its weight instead.

    Parameters, their names and their initialisation are those of fairseq: stock checkpoints load.
    Attention weights are computed only when something reads them, or in training when that is
    faster (:func:`plain_is_faster`); otherwise the fused ``scaled_dot_product_attention`` runs.

    Attributes, all set when the layer is built:
        role: ``enc-self``, ``enc-dec`` or ``dec-self``.
        head_gate: scales the heads before ``out_proj``; ``None`` unless they are gated.
        score_mixing: mixes the scores over the heads; ``None`` unless heads talk.
        weight_mixing: mixes the weights over the heads; ``None`` unless heads talk.
    """

    role = ""
    reads_scores = False  # whether route_scores() changes the scores

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.head_gate: Optional[HeadGate] = None
        self.score_mixing: Optional[HeadMixing] = None
        self.weight_mixing: Optional[HeadMixing] = None

    def forward(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor] = None,
        incremental_state: Optional[IncrementalState] = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Optional[Tensor] = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from ``query`` ``[L, B, d]`` to ``key`` and ``value`` ``[K, B, d]``.

        Args:
            key_padding_mask: ``[B, K]``, true at padding.
            incremental_state: fairseq's decoding cache; ``None`` for a full pass.
            need_weights: also return the attention weights, averaged over heads.
            static_kv: keys and values do not change between decoding steps.
            attn_mask: ``[L, K]``, added to the scores.
            before_softmax: not supported; part of the host's signature.
            need_head_weights: return the weights of each head instead of their mean.

        Returns:
            The output ``[L, B, d]`` and the weights: ``[B, L, K]``, or ``[H, B, L, K]`` with
            ``need_head_weights``, or ``None``.

        Raises:
            NotImplementedError: ``before_softmax`` is set.
        """
        if before_softmax:
            raise NotImplementedError("capsnmt attention does not return scores before the softmax")
        q, k, v, key_padding_mask = self.project(
            query, key, value, key_padding_mask, incremental_state, static_kv
        )
        returns_weights = need_weights or need_head_weights
        computes_weights = returns_weights or reads_weights(self.role)
        heads, weights = self.attend(
            q, k, v, attn_mask, key_padding_mask, incremental_state, computes_weights
        )
        observe(self.role, v, weights, heads)
        if self.head_gate is not None:
            heads = self.head_gate(query, heads)
        output = self.out_proj(self.join_heads(heads))
        if not returns_weights or weights is None:
            return output, None
        return output, weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)

    def call_heads(self) -> int:
        """Return the number of heads of the attention call."""
        return self.num_heads

    def split_heads(self, x: Tensor) -> Tensor:
        """Split projected queries or keys ``[L, B, d]`` by head, ``[B, H, L, d_h]``."""
        return split_heads(x, self.num_heads)

    def split_values(self, x: Tensor) -> Tensor:
        """Split projected values ``[K, B, d]`` by head, ``[B, H, K, d_h]``."""
        return split_heads(x, self.num_heads)

    def join_heads(self, x: Tensor) -> Tensor:
        """Join head outputs ``[B, H, L, d_h]`` to the input of ``out_proj``, ``[L, B, d]``."""
        return join_heads(x)

    def source(self, encoded: Tensor) -> Tensor:
        """Return the keys and values of encoder-decoder attention, from the encoder's output."""
        return encoded

    def route_scores(
        self,
        scores: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        incremental_state: Optional[IncrementalState],
    ) -> Tensor:
        """Return what replaces the unmasked scaled dot products ``[B, H, L, K]``.

        Called only if ``reads_scores``.
        """
        return scores

    def project(
        self,
        query: Tensor,
        key: Optional[Tensor],
        value: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        incremental_state: Optional[IncrementalState],
        static_kv: bool,
    ) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
        """Project to queries ``[B, H, L, d_h]``, keys and values ``[B', H, K, d_h]``, padding mask.

        In beam search, the encoder hands over, and encoder-decoder attention keeps, each sentence
        once for all of its hypotheses: ``B = B' * beam``. In incremental decoding the cache is read
        and written here, in the host's layout.
        """
        if query is key and key is value:
            query = key = value = convert_once(query)
        q = self.split_heads(self.q_proj(query))
        saved: Dict[str, Optional[Tensor]] = {}
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
        prev_key, prev_value = saved.get("prev_key"), saved.get("prev_value")
        prev_key_padding_mask = saved.get("prev_key_padding_mask")
        if static_kv and prev_key is not None and prev_value is not None:
            return q, prev_key, prev_value, prev_key_padding_mask

        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            assert key is not None
            key = value = convert_once(self.source(key))
        assert key is not None
        assert value is not None
        k = self.split_heads(self.k_proj(key))
        v = self.split_values(self.v_proj(value))

        if incremental_state is not None:
            if prev_key is not None and prev_value is not None:
                k = torch.cat([prev_key, k], dim=2)
                v = torch.cat([prev_value, v], dim=2)
            key_padding_mask = self._append_prev_key_padding_mask(
                key_padding_mask=key_padding_mask,
                prev_key_padding_mask=prev_key_padding_mask,
                batch_size=k.size(0),
                src_len=k.size(2),
                static_kv=static_kv,
            )
            saved["prev_key"], saved["prev_value"] = k, v
            saved["prev_key_padding_mask"] = key_padding_mask
            if self.encoder_decoder_attention:  # no numbers: its shape is the beam
                saved["beam"] = k.new_empty(k.size(0), q.size(0) // k.size(0), 0)
            self._set_input_buffer(incremental_state, saved)
        return q, k, v, key_padding_mask

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> Optional[IncrementalState]:
        """Reorder the cache in beam search: by hypotheses, or by sentences where those share it.

        Most steps move no sentence. A CPU then copies nothing; a GPU would have to wait to know.
        """
        cache = self._get_input_buffer(incremental_state)
        beam = cache.get("beam")
        if beam is not None:
            new_order = sentence_order(new_order, beam.size(1))
            if stays(new_order, beam.size(0)):
                return incremental_state
        for name, tensor in cache.items():
            if tensor is not None:
                cache[name] = tensor.index_select(0, new_order)
        return self._set_input_buffer(incremental_state, cache)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        incremental_state: Optional[IncrementalState],
        need_weights: bool,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Return head outputs ``[B, H, L, d_h]`` and, if needed, weights ``[B, H, L, K]``.

        Talking heads mix the scores after any routing and before the mask, and the weights before
        dropout.

        **D**: the weights returned are distributions, those before they are mixed.
        """
        batch, _, length, _ = q.shape
        sentences = k.size(0)
        if batch != sentences:  # the hypotheses of one sentence are further queries to its keys
            q = q.unflatten(0, (sentences, -1)).transpose(1, 2).flatten(2, 3)
        mask = additive_mask(attn_mask, key_padding_mask, like=q)
        dropout = self.dropout_module
        weights: Optional[Tensor] = None
        plain = need_weights or self.reads_scores or self.score_mixing is not None
        # not by gradients: a checkpointed layer runs without them first, and must run the same
        plain = plain or (self.training and plain_is_faster(q, k))
        if plain:
            scores = torch.matmul(q * self.scaling, k.transpose(-1, -2))
            scores = self.route_scores(scores, attn_mask, key_padding_mask, incremental_state)
            if self.score_mixing is not None:
                scores = self.score_mixing(scores)
            scores = scores if mask is None else scores + mask
            if need_weights:
                precise = torch.promote_types(scores.dtype, torch.float32)
                weights = torch.softmax(scores, dim=-1, dtype=precise)
                mixed = weights.type_as(scores)
            else:  # the same, rounded by the kernel itself: backward keeps no precise copy
                mixed = torch.softmax(scores, dim=-1)
            if self.weight_mixing is not None:
                mixed = self.weight_mixing(mixed)
            heads = torch.matmul(dropout(mixed), v)
        else:
            dropping = self.training or dropout.apply_during_inference
            p = dropout.p if dropping else 0.0
            heads = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=p, scale=self.scaling
            )
        if batch != sentences:
            heads = heads.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
            if weights is not None:
                weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return heads, weights


class BlockAttention(Attention):
    """Encoder-decoder attention to one block of the encoder's output features.

    Args:
        block: index of the block, from 0; its width is ``kdim``.
    """

    def __init__(self, *args: Any, block: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.block = block

    def source(self, encoded: Tensor) -> Tensor:
        """Return one block of the encoder's output ``[K, B, n * kdim]``."""
        return encoded[..., self.block * self.kdim : (self.block + 1) * self.kdim]

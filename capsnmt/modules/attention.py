"""The multi-head attention shared by all mechanisms."""

from __future__ import annotations

import math
from typing import Dict, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from capsnmt.cpu.attention import plain_is_faster
from capsnmt.cpu.dropout import Dropout
from capsnmt.modules.autocast import autocast_dtype, convert_once
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing
from capsnmt.modules.observation import observe, reads_weights

Cache = Dict[str, Tensor]
"""What an attention keeps between two steps of decoding; batch first. It starts empty."""


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Reshape ``[length, batch, d]`` to ``[batch, heads, length, d / heads]``."""
    length, batch, _ = x.shape
    return x.reshape(length, batch, num_heads, -1).permute(1, 2, 0, 3)


def join_heads(x: Tensor) -> Tensor:
    """Reshape ``[batch, heads, length, d / heads]`` to ``[length, batch, d]``."""
    batch, _, length, _ = x.shape
    return x.permute(2, 0, 1, 3).reshape(length, batch, -1)


def lowest(dtype: torch.dtype) -> float:
    """Return what is added to a masked score: half the range of the dtype, not infinity.

    The softmax of a row that is masked completely (for example at a padded target position) is then
    an average that nothing reads; a softmax over infinities would be NaN and spoil every gradient.
    Half of the range, so that fp16 cannot overflow.
    """
    return torch.finfo(dtype).min / 2


def additive_padding(padding: Tensor, like: Tensor) -> Tensor:
    """Return a mask ``[B, K]``, true at padding, as what all layers of a stack add to their scores.

    Args:
        padding: the mask.
        like: the input of the stack. Under autocast the scores have another dtype.
    """
    dtype = autocast_dtype(like.device.type) or like.dtype
    return torch.zeros_like(padding, dtype=dtype).masked_fill(padding, lowest(dtype))


def additive_mask(
    attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], like: Tensor
) -> Optional[Tensor]:
    """Merge the two masks into one additive mask, broadcastable to ``[B, H, L, K]``.

    Args:
        attn_mask: ``[L, K]``, added to the scores (``-inf`` where attention is not allowed).
        key_padding_mask: ``[B, K]``, true at padding, or :func:`additive_padding` of it.
        like: a tensor of the scores' dtype and device.
    """
    mask: Optional[Tensor] = None
    if attn_mask is not None:
        mask = attn_mask.to(like).clamp(min=lowest(like.dtype))[None, None]
    if key_padding_mask is None:
        return mask
    if not key_padding_mask.is_floating_point():
        padding = key_padding_mask.to(like.device, torch.bool)
        key_padding_mask = torch.zeros_like(padding, dtype=like.dtype)
        key_padding_mask = key_padding_mask.masked_fill(padding, lowest(like.dtype))
    padding = key_padding_mask.to(like)[:, None, None]
    return padding if mask is None else torch.minimum(mask, padding)


def append_padding(
    cached: Optional[Tensor], new: Optional[Tensor], keys: Tensor
) -> Optional[Tensor]:
    """Return the padding ``[B, K]`` of cached and new keys ``[B, H, K, d_h]``; None: none is."""
    if cached is None and new is None:
        return None
    if cached is None:
        assert new is not None
        cached = keys.new_zeros(keys.size(0), keys.size(2) - new.size(1), dtype=torch.bool)
    if new is None:
        new = keys.new_zeros(keys.size(0), keys.size(2) - cached.size(1), dtype=torch.bool)
    return torch.cat([cached.to(torch.bool), new.to(torch.bool)], dim=1)


def sentence_order(new_order: Tensor, beam: int) -> Tensor:
    """Return the order of the sentences in a new order of their hypotheses, ``beam`` each.

    **D**: the hypotheses of a sentence stay together, as in every search of fairseq.
    """
    return torch.div(new_order[::beam], beam, rounding_mode="floor")


def stays(order: Tensor, rows: int) -> bool:
    """Return whether an order of so many rows is theirs; a GPU, which must wait, does not look."""
    return order.device.type == "cpu" and torch.equal(order, torch.arange(rows))


class Attention(nn.Module):
    r"""Multi-head attention (Vaswani et al. 2017, section 3.2) with two slots for mechanisms.

    .. math::
        E_h = Q_h K_h^\top / \sqrt{d_h}, \quad O_h = \mathrm{softmax}(E'_h) V_h, \quad
        \mathrm{out} = W^O [O_1; ..; O_H] + b^O

    :meth:`scores` returns E' of the dot products E, and :meth:`aggregate` the output of the heads
    O. Without a mechanism E' is E, and the parameters, 4 (d^2 + d), their names and their
    initialisation are those of fairseq: checkpoints of its Transformer load.

    Attention weights are computed only when something reads them, or in training when that is
    faster (:func:`plain_is_faster`); otherwise the fused ``scaled_dot_product_attention`` runs.

    Args:
        embed_dim: d, the width of queries and output.
        num_heads: H, a divisor of d.
        source_dim: the width of the keys' sequence; None means d.
        cross: the keys are another sequence, which stays the same in all steps of decoding.
        dropout: dropout of the attention weights.

    Attributes:
        role: ``enc-self``, ``enc-dec`` or ``dec-self``, for what observes it.
        out_proj: W^O, or a module that takes its place, such as
            :class:`capsnmt.modules.head_aggregation.HeadRouting`.
        head_gate: scales the heads before ``out_proj``; None unless they are gated.
        score_mixing: mixes the scores over the heads; None unless heads talk.
        weight_mixing: mixes the weights over the heads; None unless heads talk.

    Raises:
        ValueError: H does not divide d.

    >>> attention = Attention(8, num_heads=2).eval()
    >>> x = torch.randn(5, 3, 8)  # L = 5, B = 3
    >>> future = torch.full((5, 5), float("-inf")).triu(1)
    >>> output, weights = attention(x, attn_mask=future, need_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([5, 3, 8]), torch.Size([3, 2, 5, 5]))
    >>> cache = {}  # one position a step
    >>> steps = [attention(position, cache=cache)[0] for position in x.split(1)]
    >>> torch.allclose(torch.cat(steps), output, atol=1e-6)
    True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        source_dim: Optional[int] = None,
        cross: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide the width {embed_dim}")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.source_dim = source_dim or embed_dim
        self.cross = cross
        self.head_dim = embed_dim // num_heads
        self.scaling = self.head_dim**-0.5
        self.role = ""
        self.dropout_module = Dropout(dropout)
        self.k_proj = nn.Linear(self.source_dim, embed_dim)
        self.v_proj = nn.Linear(self.source_dim, embed_dim)
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj: nn.Module = nn.Linear(embed_dim, embed_dim)
        self.head_gate: Optional[HeadGate] = None
        self.score_mixing: Optional[HeadMixing] = None
        self.weight_mixing: Optional[HeadMixing] = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Apply Glorot initialisation, as fairseq: scaled by 1/sqrt(2) where all widths are d."""
        gain = self.projection_gain()
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(projection.weight, gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def projection_gain(self) -> float:
        """Return the gain of the initialisation of queries, keys and values."""
        return 1 / math.sqrt(2) if self.source_dim == self.embed_dim else 1.0

    def forward(
        self,
        query: Tensor,
        memory: Optional[Tensor] = None,
        key_padding_mask: Optional[Tensor] = None,
        attn_mask: Optional[Tensor] = None,
        cache: Optional[Cache] = None,
        need_weights: bool = False,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from ``query`` ``[L, B, d]`` to ``memory`` ``[K, B, source_dim]``.

        Args:
            memory: the sequence of keys and values; None: that of the queries.
            key_padding_mask: ``[B, K]``, true at padding, or :func:`additive_padding` of it.
            attn_mask: ``[L, K]``, added to the scores.
            cache: of incremental decoding, read and written; None for a full pass.
            need_weights: also return the attention weights.
            is_causal: ``attn_mask`` hides the later positions and nothing else. The fused call then
                reads no mask, as flash attention requires.

        Returns:
            The output ``[L, B, d]`` and the weights ``[B, H, L, K]``, or None.
        """
        q, k, v, key_padding_mask = self.project(query, memory, key_padding_mask, cache)
        computes_weights = need_weights or reads_weights(self.role)
        heads, weights = self.attend(
            q, k, v, attn_mask, key_padding_mask, cache, computes_weights, is_causal
        )
        observe(self.role, v, weights, heads)
        return self.aggregate(heads, query), weights if need_weights else None

    @property
    def reads_scores(self) -> bool:
        """Whether :meth:`scores` changes the scores."""
        return self.score_mixing is not None

    def scores(
        self,
        e: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
    ) -> Tensor:
        """Return E' of the unmasked scaled dot products E ``[B, H, L, K]``."""
        return e if self.score_mixing is None else self.score_mixing(e)

    def aggregate(self, heads: Tensor, query: Tensor) -> Tensor:
        """Return the output ``[L, B, d]`` of heads ``[B, H, L, d_h]`` and queries ``[L, B, d]``."""
        if self.head_gate is not None:
            heads = self.head_gate(query, heads)
        return self.out_proj(self.join_heads(heads))

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

    def source(self, memory: Tensor) -> Tensor:
        """Return the part of the memory that keys and values are projected from."""
        return memory

    def project(
        self,
        query: Tensor,
        memory: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
    ) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
        """Project to queries ``[B, H, L, d_h]``, keys and values ``[B', H, K, d_h]``, padding mask.

        In beam search, encoder-decoder attention gets and keeps each sentence once for all of its
        hypotheses: ``B = B' * beam``.
        """
        if memory is None:
            query = memory = convert_once(query)
        q = self.split_heads(self.q_proj(query))
        if self.cross and cache:
            return q, cache["prev_key"], cache["prev_value"], cache.get("prev_key_padding_mask")
        memory = convert_once(self.source(memory))
        k = self.split_heads(self.k_proj(memory))
        v = self.split_values(self.v_proj(memory))
        if cache is None:
            return q, k, v, key_padding_mask
        if cache:
            k = torch.cat([cache["prev_key"], k], dim=2)
            v = torch.cat([cache["prev_value"], v], dim=2)
        if not self.cross:
            cached_padding = cache.get("prev_key_padding_mask")
            key_padding_mask = append_padding(cached_padding, key_padding_mask, k)
        cache["prev_key"], cache["prev_value"] = k, v
        if key_padding_mask is not None:
            cache["prev_key_padding_mask"] = key_padding_mask
        if self.cross:  # no numbers: its shape is the beam
            cache["beam"] = k.new_empty(k.size(0), q.size(0) // k.size(0), 0)
        return q, k, v, key_padding_mask

    def reorder(self, cache: Cache, new_order: Tensor) -> None:
        """Reorder a cache in beam search: by hypotheses, or by sentences where those share it.

        Most steps move no sentence. A CPU then copies nothing; a GPU would have to wait to know.
        """
        beam = cache.get("beam")
        if beam is not None:
            new_order = sentence_order(new_order, beam.size(1))
            if stays(new_order, beam.size(0)):
                return
        for name, tensor in cache.items():
            cache[name] = tensor.index_select(0, new_order)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
        need_weights: bool,
        is_causal: bool = False,
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
        weights: Optional[Tensor] = None
        faster = self.training and plain_is_faster(q, k)
        if need_weights or self.reads_scores or faster:
            scores = torch.matmul(q * self.scaling, k.transpose(-1, -2))
            scores = self.scores(scores, attn_mask, key_padding_mask, cache)
            mask = additive_mask(attn_mask, key_padding_mask, like=q)
            scores = scores if mask is None else scores + mask
            if need_weights:
                precise = torch.promote_types(scores.dtype, torch.float32)
                weights = torch.softmax(scores, dim=-1, dtype=precise)
                mixed = weights.type_as(scores)
            else:  # the same, rounded by the kernel itself: backward keeps no precise copy
                mixed = torch.softmax(scores, dim=-1)
            if self.weight_mixing is not None:
                mixed = self.weight_mixing(mixed)
            heads = torch.matmul(self.dropout_module(mixed), v)
        else:
            is_causal = is_causal and key_padding_mask is None
            mask = None if is_causal else additive_mask(attn_mask, key_padding_mask, like=q)
            settings = {"dropout_p": self.dropout_module.rate(), "scale": self.scaling}
            heads = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=is_causal, **settings
            )
        if batch != sentences:
            heads = heads.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
            if weights is not None:
                weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return heads, weights

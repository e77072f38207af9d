"""The multi-head attention shared by all mechanisms."""

import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.autocast import convert_once
from capsnmt.modules.cache import Cache, Slots, append, keep, kept
from capsnmt.modules.drop_head import DropHead
from capsnmt.modules.dropout import Dropout
from capsnmt.modules.head_aggregation import HeadComposition, HeadGate, HeadMixing
from capsnmt.modules.head_aggregation.composed import Mixing
from capsnmt.modules.masks import additive_mask
from capsnmt.modules.observation import open_observer
from capsnmt.modules.overrides import inherits, overridden
from capsnmt.modules.shortcuts import SHORTCUTS
from capsnmt.routing.numerics import compute_dtype


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Reshape ``[length, batch, d]`` to ``[batch, heads, length, d / heads]``."""
    return x.unflatten(-1, (num_heads, x.size(-1) // num_heads)).permute(1, 2, 0, 3)


def join_heads(x: Tensor) -> Tensor:
    """Reshape ``[batch, heads, length, d / heads]`` to ``[length, batch, d]``."""
    return x.permute(2, 0, 1, 3).flatten(-2)


def by_sentence(q: Tensor, sentences: int) -> Tensor:
    """Return queries ``[B k, H, L, d_h]`` of k hypotheses a sentence as ``[B, H, k L, d_h]``.

    The hypotheses of a sentence are further queries to its keys.
    """
    if q.size(0) == sentences:
        return q
    return q.unflatten(0, (sentences, -1)).transpose(1, 2).flatten(2, 3)


def by_hypothesis(x: Tensor, length: int) -> Tensor:
    """Return heads or weights ``[B, H, k L, ..]`` as ``[B k, H, L, ..]``: see above."""
    if x.size(2) == length:
        return x
    return x.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)


class Attention(nn.Module):
    r"""Multi-head attention (Vaswani et al. 2017, section 3.2) with two slots for mechanisms.

    .. math::
        E_h = Q_h K_h^\top / \sqrt{d_h}, \quad O_h = \mathrm{softmax}(E'_h) V_h, \quad
        \mathrm{out} = W^O [O_1; ..; O_H] + b^O

    :meth:`scores` returns E' of the dot products E, which heads may then mix, and :meth:`aggregate`
    the output of the heads O. Without a mechanism E' is E, and the parameters, 4 (d^2 + d), their
    names and their initialisation are those of fairseq: checkpoints of its Transformer load.

    Attention weights are computed only when something reads them, or in training where that is
    faster (:class:`.shortcuts.Shortcuts`). Otherwise the fused ``scaled_dot_product_attention``
    runs.

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
        drop_head: drops heads in training; None unless some are dropped.
        head_gate: scales the heads before ``out_proj``; None unless they are gated.
        score_mixing: mixes the scores over the heads; None unless heads talk.
        weight_mixing: mixes the weights over the heads; None unless heads talk.
        composition: mixes both, by maps of each query and key, which they carry; None unless heads
            are composed.

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
        if num_heads < 1 or embed_dim % num_heads:
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
        self.drop_head: Optional[DropHead] = None
        self.head_gate: Optional[HeadGate] = None
        self.score_mixing: Optional[HeadMixing] = None
        self.weight_mixing: Optional[HeadMixing] = None
        self.composition: Optional[HeadComposition] = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Apply Glorot initialisation, as fairseq: scaled by 1/sqrt(2) where all widths are d."""
        gain = self.projection_gain()
        for projection in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(projection.weight, gain)
        if isinstance(self.out_proj, nn.Linear):  # what takes its place has its own
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
            attn_mask: ``[L, K]``, added to the scores, or true where attention is not allowed.
            cache: of incremental decoding, read and written; None for a full pass.
            need_weights: also return the attention weights.
            is_causal: ``attn_mask`` hides the later positions and nothing else. The fused call then
                reads no mask, as flash attention requires.

        Returns:
            The output ``[L, B, d]`` and the weights ``[B, H, L, K]``, or None.

        Raises:
            ValueError: ``is_causal`` without ``attn_mask``.
        """
        if is_causal and attn_mask is None:
            raise ValueError("is_causal describes attn_mask, which is None; give the mask as well")
        q, k, v, key_padding_mask = self.project(query, memory, key_padding_mask, cache)
        observer = open_observer(self.role)
        computes_weights = need_weights or (observer is not None and observer.reads_weights)
        heads, weights = self.attend(
            q, k, v, attn_mask, key_padding_mask, cache, computes_weights, is_causal
        )
        if observer is not None:
            observer.add(self.role, v, weights, heads)
        return self.aggregate(heads, query), weights if need_weights else None

    @property
    def reads_scores(self) -> bool:
        """Whether anything reads or changes the scores or the weights, as a user's dropout may."""
        mixings = self.score_mixing, self.weight_mixing, self.composition
        own = not inherits(self, Attention, "scores", "weights")
        own = own or overridden(self.dropout_module, Dropout)
        return own or any(mixing is not None for mixing in mixings)

    def scores(
        self,
        e: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
    ) -> Tensor:
        """Return E' of the unmasked scaled dot products E ``[B, H, L, K]``, before heads mix."""
        return e

    def aggregate(self, heads: Tensor, query: Tensor) -> Tensor:
        """Return the output ``[L, B, d]`` of heads ``[B, H, L, d_h]`` and queries ``[L, B, d]``."""
        if self.drop_head is not None:
            heads = self.drop_head(heads)
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

    def memory_dim(self) -> int:
        """Return the width of what keys are projected from."""
        return self.source_dim

    def sources(self, memory: Tensor) -> Tuple[Tensor, Tensor]:
        """Return the parts of the memory that keys and values are projected from."""
        memory = convert_once(memory)
        return memory, memory

    def project(
        self,
        query: Tensor,
        memory: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
    ) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor]]:
        """Project to queries ``[B, H, L, d_h]``, keys and values ``[B', H, K, d_h]``, padding mask.

        Of composed heads, queries and keys are longer by the weights of the maps that they make.
        In beam search, encoder-decoder attention gets and keeps each sentence once for all of its
        hypotheses: ``B = B' * beam``.
        """
        if memory is None:
            query = memory = convert_once(query)
        q = self.split_heads(self.q_proj(query))
        if self.composition is not None:
            q = torch.cat([q, self.composition.query(query)], dim=-1)
        if self.cross and cache:
            return (q, *kept(cache))
        of_keys, of_values = self.sources(memory)
        k, v = self.split_heads(self.k_proj(of_keys)), self.split_values(self.v_proj(of_values))
        if self.composition is not None:
            k = torch.cat([k, self.composition.key(of_keys)], dim=-1)
        if cache is None:
            return q, k, v, key_padding_mask
        if not self.cross:
            return (q, *append(cache, k, v, key_padding_mask))
        if not isinstance(cache, Slots):
            beam = q.size(0) // k.size(0) if k.size(0) else 1
            cache["beam"] = k.new_empty(k.size(0), beam, 0)
        return (q, *keep(cache, k, v, key_padding_mask))

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        cache: Optional[Cache],
        need_weights: bool,
        is_causal: bool,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Return head outputs ``[B, H, L, d_h]`` and, if needed, weights ``[B, H, L, K]``."""
        length, sentences = q.size(2), k.size(0)
        q = by_sentence(q, sentences)
        mix_scores: Optional[Mixing] = self.score_mixing
        mix_weights: Optional[Mixing] = self.weight_mixing
        if self.composition is not None:
            q, k, mix_scores, mix_weights = self.composition.mixings(q, k)
        weights: Optional[Tensor] = None
        by_products = self.training and SHORTCUTS.products_are_faster(q, k)
        if need_weights or self.reads_scores or by_products:
            scores = torch.matmul(q * self.scaling, k.transpose(-1, -2))
            places: Optional[Tensor] = None
            if isinstance(cache, Slots) and not self.cross and self.composition is None:
                # of each hypothesis, in the order of its words
                places = cache.search.places().unsqueeze(1).expand(-1, q.size(1), -1, -1)
                scores, key_padding_mask = by_hypothesis(scores.gather(-1, places), length), None
            scores = self.scores(scores, attn_mask, key_padding_mask, cache)
            scores = scores if mix_scores is None else mix_scores(scores)
            mask = additive_mask(attn_mask, key_padding_mask, like=q)
            scores = scores if mask is None else scores + mask
            mixed, weights = self.weights(scores, need_weights, mix_weights)
            mixed = self.dropout_module(mixed)
            if places is not None:
                mixed = by_sentence(mixed, sentences)
                mixed = mixed.new_zeros(*mixed.shape[:3], k.size(2)).scatter(-1, places, mixed)
            heads = torch.matmul(mixed, v)
        elif isinstance(cache, Slots):
            heads = SHORTCUTS.attend_to_slots(q, k, v, key_padding_mask, self.scaling)
        else:
            is_causal = is_causal and key_padding_mask is None
            mask = None if is_causal else additive_mask(attn_mask, key_padding_mask, like=q)
            settings = {"dropout_p": self.dropout_module.rate(), "scale": self.scaling}
            heads = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=is_causal, **settings
            )
        if weights is not None:
            weights = by_hypothesis(weights, length)
        return by_hypothesis(heads, length), weights

    def weights(
        self, scores: Tensor, needed: bool, mix: Optional[Mixing]
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Return what multiplies the values and, if needed, the weights: the softmax of the scores.

        Talking and composed heads mix the scores after any routing and before the mask, and the
        weights before dropout.

        **D**: the weights returned are distributions, those before they are mixed.
        """
        weights: Optional[Tensor] = None
        if needed:
            weights = torch.softmax(scores, dim=-1, dtype=compute_dtype(scores))
            mixed = weights.type_as(scores)
        else:  # the same, rounded by the kernel itself: backward keeps no precise copy
            mixed = torch.softmax(scores, dim=-1)
        return mixed if mix is None else mix(mixed), weights

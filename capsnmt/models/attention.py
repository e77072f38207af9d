"""The attentions and the dropout as fairseq's layers have them."""

from typing import Any, Dict, Optional, Tuple

import torch
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor

from capsnmt.modules.attention import Attention
from capsnmt.modules.cache import Cache, SearchState, Slots, reorder
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.dropout import Dropout
from capsnmt.modules.layer_aggregation.transparent import BlockAttention
from capsnmt.modules.multi_layer_attention import MultiLayerAttention
from capsnmt.modules.overrides import inherits
from capsnmt.modules.surface_fusion import SurfaceAttention
from capsnmt.routing.tracing import is_traced

IncrementalState = Dict[str, Cache]
PROJECTIONS = ("k_proj", "v_proj", "q_proj", "out_proj")


class RetainedDropout(Dropout):
    """Dropout that ``--retain-dropout`` keeps at inference, by the name of its module."""

    make_generation_fast_ = FairseqDropout.make_generation_fast_

    def __init__(self, p: float, module_name: str) -> None:
        super().__init__(p)
        self.module_name = module_name
        self.apply_during_inference = False

    def rate(self) -> float:
        """Return the probability with which a feature is dropped now."""
        return float(self.p) if self.apply_during_inference else super().rate()


class Hosted(FairseqIncrementalState):
    """An attention with fairseq's signature, and its cache in fairseq's incremental state.

    Args:
        sizes: the widths and heads of the attention.
        q_noise: quantisation noise on the projections, as in fairseq's attention.
    """

    upgrade_state_dict_named = MultiheadAttention.upgrade_state_dict_named

    def __init__(
        self,
        *sizes: Any,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **settings: Any,
    ) -> None:
        super().__init__(*sizes, **settings)
        # in --retain-dropout-modules: fairseq's name without a mechanism, or that of its class
        plain = type(self) is HostedAttention
        name = "MultiheadAttention" if plain else type(self).__name__.replace("Hosted", "")
        self.dropout_module: Dropout = RetainedDropout(dropout, name)
        for name in PROJECTIONS:
            setattr(self, name, quant_noise(getattr(self, name), q_noise, qn_block_size))

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
        """Attend as fairseq's ``MultiheadAttention``, whose keys and values are one sequence here.

        Args:
            query: ``[L, B, d]``.
            key: ``[K, B, d]``, or the query itself.
            value: the key.
            key_padding_mask: ``[B, K]``, true at padding.
            incremental_state: fairseq's decoding cache; None for a full pass.
            need_weights: also return the attention weights, averaged over heads.
            static_kv: part of the host's signature: an attention knows it.
            attn_mask: ``[L, K]``, added to the scores. That of our decoder says ``is_causal``: it
                hides the later positions and nothing else, and so need not be read.
            need_head_weights: return the weights of each head instead of their mean.

        Returns:
            The output ``[L, B, d]`` and the weights: ``[B, L, K]``, or ``[H, B, L, K]`` with
            ``need_head_weights``, or None.

        Raises:
            ValueError: the value is not the key, or ``before_softmax``.
        """
        same = value is None or value is key or torch.equal(value, key)
        if before_softmax or not same:
            raise ValueError(
                "an attention of capsnmt reads keys and values from one sequence, and returns no "
                "scores: give the key as value, without before_softmax"
            )
        cache = None
        if incremental_state is not None:
            cache = self._get_input_buffer(incremental_state)
            self._set_input_buffer(incremental_state, cache)
        output, weights = super().forward(
            query,
            None if key is query else key,
            key_padding_mask,
            attn_mask,
            cache,
            need_weights or need_head_weights,
            is_causal=not is_traced() and getattr(attn_mask, "is_causal", False),
        )
        if weights is None:
            return output, None
        return output, weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)

    def _get_input_buffer(self, incremental_state: Optional[IncrementalState]) -> Cache:
        """Return this attention's cache; a decoder layer looks whether it has a ``prev_key``."""
        cache = self.get_incremental_state(incremental_state, "attn_state")
        if cache is None and isinstance(incremental_state, SearchState) and not self.reads_order:
            return Slots(incremental_state)
        return {} if cache is None else cache

    @property
    def reads_order(self) -> bool:
        """Whether the keys of a hypothesis must be in order and alone: each has its cache then.

        **D**: so does any attention of which a method that sees the cache is not ours. The maps of
        composed heads are of slots, and capsules of words.
        """
        ours = inherits(self, Attention, "project", "attend") and inherits(self, Hosted, "forward")
        bases = [Attention] if self.composition is not None else [Attention, CapsuleAttention]
        return not (ours and any(inherits(self, base, "scores") for base in bases))

    def _set_input_buffer(
        self, incremental_state: Optional[IncrementalState], cache: Cache
    ) -> Optional[IncrementalState]:
        return self.set_incremental_state(incremental_state, "attn_state", cache)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the cache in beam search."""
        reorder(self._get_input_buffer(incremental_state), new_order)


class HostedAttention(Hosted, Attention):  # type: ignore[misc]
    """Multi-head attention in a layer of fairseq."""


class HostedBlockAttention(Hosted, BlockAttention):  # type: ignore[misc]
    """Attention to one block of the encoder's features in a layer of fairseq."""


class HostedCapsuleAttention(Hosted, CapsuleAttention):  # type: ignore[misc]
    """Capsule-routing self-attention in a layer of fairseq."""


class HostedMultiLayerAttention(Hosted, MultiLayerAttention):  # type: ignore[misc]
    """Multi-layer attention in a layer of fairseq."""


class HostedSurfaceAttention(Hosted, SurfaceAttention):  # type: ignore[misc]
    """Attention to the surface of the source, after the layers of fairseq."""

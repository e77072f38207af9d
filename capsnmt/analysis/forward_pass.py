"""What one forward pass gives an analysis: sentences, attentions, routings, aggregations, states.

All tensors are detached, batch first, on the model's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence

from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """Sentences of a batch."""

    numbers: Sequence[int]  # in the test set, from 0
    sample: Dict[str, Any]  # as fairseq's data set collates it
    source: Tensor  # [B, S], true at real tokens of the source, the end of sentence included
    target: Tensor  # [B, T], true at real tokens of the decoder's input


@dataclass(frozen=True)
class AttentionCall:
    """One attention on one batch."""

    place: str  # enc-self, enc-dec or dec-self
    layer: int  # from 1
    weights: Tensor  # A, the output of the softmax, [B, H, L, K], 0 at padded keys
    values: Tensor  # V, [B, H, K, d_h]
    heads: Tensor  # O, [B, H, L, d_h]
    queries: Tensor  # [B, L], true at real tokens
    keys: Tensor  # [B, K], true at real tokens
    offset: Tensor  # query minus key in positions of their sentence, [B, L, K]
    batch: Batch


@dataclass(frozen=True)
class RoutingCall:
    """One call of a routing operator on one batch: P routings of I inputs to N outputs each."""

    place: str  # an attention; encoder or decoder for routing over layers
    kind: str  # what is routed: heads, layers, or scores (vertical or horizontal)
    layer: int  # from 1; of a routing over layers, the number of layers
    coefficients: List[Tensor]  # C of each iteration, [B, P, I, N]
    routings: Tensor  # [B, P], false where a routing belongs to padding
    inputs: Tensor  # [B, P, I], false where an input takes no part
    outputs: Tensor  # [B, P, N], false where an output takes no part
    batch: Batch


@dataclass(frozen=True)
class AggregationCall:
    """One aggregation of a stack's layers on one batch."""

    side: str  # encoder or decoder
    module: nn.Module
    # its inputs, [B, L, d] each; of transparent attention, H^0..H^L; of a connection, y_0..y_l as
    # they are summed
    layers: List[Tensor]
    real: Tensor  # [B, L], true at real tokens


@dataclass(frozen=True)
class StackStates:
    """The states of both stacks on one batch."""

    batch: Batch
    encoder: List[Tensor]  # H^0..H^L of the encoder, before a final normalisation, [B, S, d] each
    decoder: List[Tensor]  # the same of the decoder, [B, T, d] each
    encoder_normalised: List[Tensor]  # the encoder's after a final normalisation
    encoder_output: Tensor  # what the decoder reads, [B, S, n d]
    logits: Tensor  # [B, T, V]

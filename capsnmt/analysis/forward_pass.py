"""What one forward pass gives an analysis: sentences, attentions, routings, aggregations, states.

All tensors are detached, batch first, on the model's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Sequence

from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """Sentences of a batch.

    Attributes:
        numbers: their numbers in the test set, from 0.
        sample: the batch as fairseq's data set collates it.
        source: ``[B, S]``, true at the real tokens of the source, the end of sentence included.
        target: ``[B, T]``, true at the real tokens of the decoder's input.
    """

    numbers: Sequence[int]
    sample: Dict[str, Any]
    source: Tensor
    target: Tensor


@dataclass(frozen=True)
class AttentionCall:
    """One attention on one batch.

    Attributes:
        place: ``enc-self``, ``enc-dec`` or ``dec-self``.
        layer: from 1.
        weights: A, the output of the softmax, ``[B, H, L, K]``, 0 at padded keys.
        values: V, ``[B, H, K, d_h]``.
        heads: O, ``[B, H, L, d_h]``.
        queries: ``[B, L]``, true at real tokens.
        keys: ``[B, K]``, true at real tokens.
        offset: query minus key in positions of their sentence, ``[B, L, K]``.
        batch: the sentences.
    """

    place: str
    layer: int
    weights: Tensor
    values: Tensor
    heads: Tensor
    queries: Tensor
    keys: Tensor
    offset: Tensor
    batch: Batch


@dataclass(frozen=True)
class RoutingCall:
    """One call of a routing operator on one batch: P routings of I inputs to N outputs each.

    Attributes:
        place: an attention; ``encoder`` or ``decoder`` for routing over layers.
        kind: what is routed: ``heads``, ``layers``, or scores, which is ``vertical`` or
            ``horizontal`` routing.
        layer: from 1; of a routing over layers, the number of layers.
        coefficients: C of each iteration, ``[B, P, I, N]``.
        routings: ``[B, P]``, false where a routing belongs to padding.
        inputs: ``[B, P, I]``, false where an input takes no part.
        outputs: ``[B, P, N]``, false where an output takes no part.
        batch: the sentences.
    """

    place: str
    kind: str
    layer: int
    coefficients: List[Tensor]
    routings: Tensor
    inputs: Tensor
    outputs: Tensor
    batch: Batch


@dataclass(frozen=True)
class AggregationCall:
    """One aggregation of a stack's layers on one batch.

    Attributes:
        side: ``encoder`` or ``decoder``.
        module: the aggregation.
        layers: its inputs, ``[B, L, d]`` each; of transparent attention, H^0..H^L; of a connection,
            y_0..y_l as they are summed.
        real: ``[B, L]``, true at real tokens.
    """

    side: str
    module: nn.Module
    layers: List[Tensor]
    real: Tensor


@dataclass(frozen=True)
class StackStates:
    """The states of both stacks on one batch.

    Attributes:
        batch: the sentences.
        encoder: H^0..H^L of the encoder, before a final normalisation, ``[B, S, d]`` each.
        decoder: the same of the decoder, ``[B, T, d]`` each.
        encoder_normalised: the encoder's after a final normalisation.
        encoder_output: what the decoder reads, ``[B, S, n d]``.
        logits: ``[B, T, V]``.
    """

    batch: Batch
    encoder: List[Tensor]
    decoder: List[Tensor]
    encoder_normalised: List[Tensor]
    encoder_output: Tensor
    logits: Tensor

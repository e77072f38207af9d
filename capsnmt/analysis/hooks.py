"""Run a translation model and hand everything that analyses read to them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from capsnmt.analysis.base import (
    AggregationCall,
    Analysis,
    AttentionCall,
    Batch,
    RoutingCall,
    StackStates,
)
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation import LayerAggregation, LayerConnection, TransparentMixture
from capsnmt.modules.observation import AttentionObserver, observe_attentions
from capsnmt.routing.recording import RoutingRecord, record_routing

AGGREGATIONS = (LayerAggregation, LayerConnection, TransparentMixture)
SCORE_ROUTINGS = {"vertical_routing": "vertical", "horizontal_routing": "horizontal"}


@torch.no_grad()
def observe(model: Any, batch: Batch, analyses: Sequence[Analysis]) -> None:
    """Run a ``capsnmt_transformer`` on a batch and hand everything to the analyses."""
    inputs = batch.sample["net_input"]
    with ExitStack() as stack:
        stack.enter_context(observe_attentions(_Attentions(batch, analyses)))
        records = stack.enter_context(record_routing())

        def after(place: str, layer: int) -> Callable[..., None]:
            def hook(module: nn.Module, inputs: Tuple[Any, ...], output: Any) -> None:
                for record in records:
                    routing = _routing(place, layer, record, batch)
                    for analysis in analyses:
                        analysis.on_routing(routing)
                records.clear()  # so that at most one call's coefficients are kept
                if isinstance(module, AGGREGATIONS):
                    layers = [state.transpose(0, 1) for state in inputs[0]]
                    real = batch.source if place == "encoder" else batch.target
                    for analysis in analyses:
                        analysis.on_aggregation(AggregationCall(place, module, layers, real))

            return hook

        for place, layer, module in places(model):
            stack.callback(module.register_forward_hook(after(place, layer)).remove)
        encoded = model.encoder(
            inputs["src_tokens"], src_lengths=inputs["src_lengths"], return_all_hiddens=True
        )
        logits, extra = model.decoder(inputs["prev_output_tokens"], encoder_out=encoded)
    encoder, decoder, normalised = (
        [state.transpose(0, 1) for state in states]
        for states in (
            encoded["encoder_states"],
            extra["inner_states"],
            model.encoder.normalise(encoded["encoder_states"]),
        )
    )
    output = encoded["encoder_out"][0].transpose(0, 1)
    for analysis in analyses:
        analysis.on_states(StackStates(batch, encoder, decoder, normalised, output, logits))


def places(model: Any) -> Iterator[Tuple[str, int, nn.Module]]:
    """Yield place, layer and module of everything that routes or aggregates layers."""
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for place, layer, attention in attentions(stack):
            if isinstance(attention, CapsuleAttention) and attention.reads_scores:
                yield place, layer, attention
            if isinstance(attention.out_proj, HeadRouting):
                yield place, layer, attention.out_proj
        for module in (stack.connection, stack.layer_aggregation):
            if module is not None:
                yield side, len(stack.layers), module
    if model.encoder.transparent is not None:
        yield "encoder", len(model.encoder.layers), model.encoder.transparent


def attentions(stack: Any) -> Iterator[Tuple[str, int, Attention]]:
    """Yield place, layer and module of every attention of an encoder or a decoder."""
    for number, layer in enumerate(stack.layers, 1):
        for module in layer.modules():
            if isinstance(module, Attention):
                yield module.role, number, module


def positions(real: Tensor) -> Tensor:
    """Return the position of each real token among the real tokens, from 0, ``[B, L]``."""
    return real.cumsum(1) - 1


class _Attentions(AttentionObserver):
    """Hands every attention to the analyses, with its layer and its masks."""

    reads_weights = True
    roles = frozenset(ATTENTIONS)

    def __init__(self, batch: Batch, analyses: Sequence[Analysis]) -> None:
        self.batch = batch
        self.analyses = analyses
        self.layers: Dict[str, int] = {}

    def add(self, role: str, values: Tensor, weights: Optional[Tensor], heads: Tensor) -> None:
        assert weights is not None
        layer = self.layers[role] = self.layers.get(role, 0) + 1
        source, target = self.batch.source, self.batch.target
        queries = source if role == "enc-self" else target
        keys = [target if role == "dec-self" else source]
        if keys[0].size(1) != weights.size(-1):
            keys = [source, target]  # --cross-self-attention
        offset = positions(queries).unsqueeze(2) - torch.cat([*map(positions, keys)], 1)[:, None]
        every_key = torch.cat(keys, 1)
        for analysis in self.analyses:
            analysis.on_attention(
                AttentionCall(
                    *(role, layer, weights, values, heads),
                    *(queries, every_key, offset, self.batch),
                )
            )


def _routing(place: str, layer: int, record: RoutingRecord, batch: Batch) -> RoutingCall:
    """Return a recorded call with batch first and its masks."""
    real = batch.source if place in ("enc-self", "encoder") else batch.target
    kind = SCORE_ROUTINGS.get(record.operator)
    C = record.coefficients
    if kind == "vertical":  # [B, heads, positions]
        C = [of_iteration.unsqueeze(1) for of_iteration in C]
        routings = real.any(1, keepdim=True)
        inputs, outputs = routings.new_ones(C[0].shape[:3]), real.unsqueeze(1)
    else:
        routings = real
        if kind == "horizontal":  # [B, position, input position, heads]
            inputs = (real.unsqueeze(2) & real.unsqueeze(1)).tril()
        else:  # [positions, B, inputs, outputs]
            kind = "layers" if place in ("encoder", "decoder") else "heads"
            C = [of_iteration.transpose(0, 1) for of_iteration in C]
            inputs = real.new_ones(C[0].shape[:3])
        outputs = real.new_ones((*C[0].shape[:2], C[0].size(3)))
    return RoutingCall(place, kind, layer, C, routings, inputs, outputs, batch)

"""Run a translation model and hand everything that analyses read to them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from capsnmt.analysis.base import Analysis
from capsnmt.analysis.forward_pass import Aggregated, Attended, Batch, Routed, Stacks
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation.base import LayerAggregation
from capsnmt.modules.layer_aggregation.connection import LayerConnection
from capsnmt.modules.layer_aggregation.routing import LayerRouting
from capsnmt.modules.layer_aggregation.transparent import TransparentMixture
from capsnmt.modules.observation import AttentionObserver, observe_attentions
from capsnmt.routing.recording import RoutingRecord, record_routing


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
        self.layers[role] = self.layers.get(role, 0) + 1
        source, target = self.batch.source, self.batch.target
        keys = target if role == "dec-self" else source
        if keys.size(1) != weights.size(-1):  # --cross-self-attention: source keys, then target's
            keys = torch.cat([source, target], dim=1)
        queries = source if role == "enc-self" else target
        call = Attended(
            *(role, self.layers[role], weights, values, heads, queries, keys, self.batch)
        )
        for analysis in self.analyses:
            analysis.attended(call)


def attentions(stack: Any) -> Iterator[Tuple[str, int, Attention]]:
    """Yield role, layer and module of every attention of an encoder or a decoder."""
    for number, layer in enumerate(stack.layers, 1):
        for module in layer.modules():
            if isinstance(module, Attention):
                yield module.role, number, module


def places(model: Any) -> Iterator[Tuple[str, int, nn.Module]]:
    """Yield place, layer and module of everything that routes or aggregates layers."""
    for stack in (model.encoder, model.decoder):
        side = "encoder" if stack is model.encoder else "decoder"
        for role, number, attention in attentions(stack):
            if isinstance(attention, CapsuleAttention) and attention.reads_scores:
                yield role, number, attention
            if isinstance(attention.out_proj, HeadRouting):
                yield role, number, attention.out_proj
        for module in (stack.connection, stack.layer_aggregation):
            if module is not None:
                yield side, len(stack.layers), module
    if model.encoder.transparent is not None:
        yield "encoder", len(model.encoder.layers), model.encoder.transparent


def routes(model: Any) -> bool:
    """Return whether a model has anything that routes by agreement."""
    return any(
        isinstance(module, (CapsuleAttention, HeadRouting, LayerRouting))
        for _, _, module in places(model)
    )


def _routed(place: str, layer: int, record: RoutingRecord, batch: Batch) -> Routed:
    """Return a recorded call with batch first and its masks."""
    real = batch.source if place.startswith("enc-self") or place == "encoder" else batch.target
    coefficients = record.coefficients
    if record.operator == "vertical_routing":  # [B, heads, positions]
        coefficients = [C.unsqueeze(1) for C in coefficients]
        routings = real.any(1, keepdim=True)
        outputs: Optional[Tensor] = real.unsqueeze(1)
        inputs = None
    elif record.operator == "horizontal_routing":  # [B, position, input position, heads]
        routings, outputs = real, None
        inputs = (real.unsqueeze(2) & real.unsqueeze(1)).tril()
    else:  # [positions, B, inputs, outputs]
        coefficients = [C.transpose(0, 1) for C in coefficients]
        routings, inputs, outputs = real, None, None
    shape = coefficients[0].shape
    return Routed(
        place
        + {"vertical_routing": "-vertical", "horizontal_routing": "-horizontal"}.get(
            record.operator, ""
        ),
        layer,
        coefficients,
        routings,
        routings.new_ones(shape[:3]) if inputs is None else inputs,
        routings.new_ones((*shape[:2], shape[3])) if outputs is None else outputs,
        batch,
    )


@contextmanager
def _observed(model: Any, batch: Batch, analyses: Sequence[Analysis]) -> Iterator[None]:
    """Hand attentions, routings and aggregations to the analyses inside the ``with`` block."""

    def after(place: str, layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Tuple[Any, ...], output: Any) -> None:
            for record in records:
                for analysis in analyses:
                    analysis.routed(_routed(place, layer, record, batch))
            records.clear()  # so that at most one call's coefficients are kept
            if isinstance(module, (LayerAggregation, LayerConnection, TransparentMixture)):
                call = Aggregated(
                    place,
                    module,
                    [state.transpose(0, 1) for state in inputs[0]],
                    output.transpose(0, 1),
                    batch.source if place == "encoder" else batch.target,
                )
                for analysis in analyses:
                    analysis.aggregated(call)

        return hook

    with ExitStack() as stack:
        stack.enter_context(observe_attentions(_Attentions(batch, analyses)))
        records = stack.enter_context(record_routing())
        for place, layer, module in places(model):
            stack.callback(module.register_forward_hook(after(place, layer)).remove)
        yield


@torch.no_grad()
def observe(model: Any, batch: Batch, analyses: Sequence[Analysis]) -> None:
    """Run the model on a batch and hand everything to the analyses.

    Args:
        model: a ``capsnmt_transformer`` in evaluation mode.
        batch: the sentences, on the model's device.
        analyses: what reads the pass.
    """
    inputs = batch.sample["net_input"]
    with _observed(model, batch, analyses):
        encoded = model.encoder(
            inputs["src_tokens"], src_lengths=inputs["src_lengths"], return_all_hiddens=True
        )
        logits, extra = model.decoder(inputs["prev_output_tokens"], encoder_out=encoded)
    stacks = Stacks(
        batch,
        [state.transpose(0, 1) for state in encoded["encoder_states"]],
        [state.transpose(0, 1) for state in extra["inner_states"]],
        encoded["encoder_out"][0].transpose(0, 1),
        logits,
    )
    for analysis in analyses:
        analysis.passed(stacks)

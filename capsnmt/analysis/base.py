"""What analyses read of a forward pass, and the base class of all of them.

All tensors are detached, batch first, on the model's device.
"""

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    Hashable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import torch
from torch import Tensor, nn

from capsnmt.analysis.model import AnalysedModel, Batch
from capsnmt.analysis.plots import Figure, PointsByLayer
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.attention import Attention
from capsnmt.modules.capsule_attention import CapsuleAttention
from capsnmt.modules.head_aggregation import HeadRouting
from capsnmt.modules.layer_aggregation import LayerAggregation, LayerConnection, TransparentMixture
from capsnmt.modules.observation import AttentionObserver, observe_attentions
from capsnmt.routing.recording import RoutingRecord, record_routing

AGGREGATIONS = (LayerAggregation, LayerConnection, TransparentMixture)
SCORE_ROUTINGS = {"vertical_routing": "vertical", "horizontal_routing": "horizontal"}
Cell = Union[str, int, float, None]


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
    coefficients: List[Tensor]  # C of each iteration, [B, P, I, N], 0 at what takes no part
    routings: Tensor  # [B, P], false where a routing belongs to padding
    inputs: Tensor  # [B, P, I], false where an input takes no part
    outputs: Tensor  # [B, P, N], false where an output takes no part
    batch: Batch


@dataclass(frozen=True)
class StackStates:
    """The states of both stacks on one batch."""

    batch: Batch
    encoder: List[Tensor]  # H^0..H^L of the encoder, before a final normalisation, [B, S, d] each
    decoder: List[Tensor]  # the same of the decoder, [B, T, d] each
    encoder_normalised: List[Tensor]  # the encoder's after a final normalisation
    encoder_output: Tensor  # what the decoder reads, [B, S, n d]
    logits: Tensor  # [B, T, V]


class StreamingMeans:
    """Ratios of two sums over all batches, by key and in the order of the first batch.

    The sums are kept on the CPU in fp64, so that their error does not grow with the corpus.
    """

    def __init__(self) -> None:
        self._sums: Dict[Hashable, Tuple[Tensor, Tensor]] = {}

    def add(self, key: Hashable, total: Tensor, count: Tensor) -> None:
        """Add the two sums of one batch, of broadcastable shapes."""
        total, count = (x.detach().double().cpu() for x in (total, count))
        if key in self._sums:
            old = self._sums[key]
            total, count = old[0] + total, old[1] + count
        self._sums[key] = total, count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sums)

    def count(self, key: Hashable) -> Tensor:
        """Return the sum of the counts."""
        return self._sums[key][1]

    def __getitem__(self, key: Hashable) -> Tensor:
        """Return total / count; NaN where nothing was counted."""
        total, count = self._sums[key]
        return total / count


class NotApplicableError(Exception):
    """The reason why a model has nothing that an analysis could show."""


class Analysis:
    """One analysis of one model.

    The model runs once over the sentences, without dropout and with the decoder teacher-forced on
    the references. During the run it calls the methods ``on_...``. An analysis keeps sums, not
    tensors, so that its memory does not depend on the number of sentences, and does not keep the
    model. For a model that has nothing to analyse it raises ``NotApplicableError``.
    """

    name: ClassVar[str]  # of the CSV file, of --only and in the template of the page
    columns: ClassVar[Sequence[str]]  # of the CSV file, after ``system``
    plots: ClassVar[Sequence[PointsByLayer]] = ()
    size: ClassVar[str] = ""  # the flag with the number of its sentences, if it has its own

    def __init__(self, model: AnalysedModel) -> None:
        if self.size and not getattr(model.scope, self.size):
            raise NotApplicableError(f"--{self.size.replace('_', '-')} is 0")
        self.sentences = len(model.chosen)  # that it is about
        self.means: Dict[str, StreamingMeans] = defaultdict(StreamingMeans)  # by what is measured

    def on_attention(self, call: AttentionCall) -> None:
        """Take one attention of one layer on one batch."""

    def on_routing(self, call: RoutingCall) -> None:
        """Take one call of a routing operator on one batch."""

    def on_aggregation(
        self, side: str, module: nn.Module, layers: List[Tensor], real: Tensor
    ) -> None:
        """Take one aggregation of the layers of a stack, ``encoder`` or ``decoder``, on one batch.

        Args:
            side: the stack.
            module: what aggregates.
            layers: its inputs, ``[B, L, d]`` each: of transparent attention H^0..H^L, of a
                connection y_0..y_l as they are summed.
            real: true at real tokens, ``[B, L]``.
        """

    def on_states(self, states: StackStates) -> None:
        """Take the states of both stacks on one batch, after all other calls on the batch."""

    def finish(self, model: AnalysedModel) -> None:
        """Complete the analysis after the last batch."""

    def rows(self) -> List[Sequence[Cell]]:
        """Return the rows of the CSV file, without the name of the model."""
        raise NotImplementedError

    @classmethod
    def figures(cls, models: Mapping[str, Any]) -> List[Figure]:
        """Return further figures of the finished analyses, by model."""
        return []


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
                    routing = _routing(place, layer, module, record, batch)
                    for analysis in analyses:
                        analysis.on_routing(routing)
                records.clear()  # so that at most one call's coefficients are kept
                if isinstance(module, AGGREGATIONS):
                    layers = [state.transpose(0, 1) for state in inputs[0]]
                    real = batch.source if place == "encoder" else batch.target
                    for analysis in analyses:
                        analysis.on_aggregation(place, module, layers, real)

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


def _routing(
    place: str, layer: int, module: nn.Module, record: RoutingRecord, batch: Batch
) -> RoutingCall:
    """Return a recorded call of a module with batch first and its masks."""
    real = batch.source if place in ("enc-self", "encoder") else batch.target
    kind = SCORE_ROUTINGS.get(record.operator)
    C, drawn = record.coefficients, getattr(module, "coefficients", None)
    if drawn is not None:  # the operator, which reads them as an activation, has uniform ones
        C = [drawn.expand_as(of_iteration) for of_iteration in C]
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

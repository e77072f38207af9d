"""fairseq's encoder and decoder layers with the attentions chosen by the switches."""

from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ContextManager, Dict, Iterator, Optional, Sequence, Tuple

import torch
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from capsnmt.models.attention import (
    HostedAttention,
    HostedBlockAttention,
    HostedCapsuleAttention,
    HostedMultiLayerAttention,
)
from capsnmt.models.selection import aggregates_heads, routes_scores
from capsnmt.modules.attention import Attention
from capsnmt.modules.disagreement import DisagreementRecord
from capsnmt.modules.drop_head import DropHead
from capsnmt.modules.head_aggregation import HeadComposition, HeadGate, HeadMixing, HeadRouting
from capsnmt.modules.layer_aggregation import LayerConnection
from capsnmt.modules.observation import observe_attentions, open_observer
from capsnmt.routing.recording import open_records, record_routing

# fairseq 0.12.2's copies of a layer's weights for its evaluation fast path.
FAST_PATH_COPIES = tuple(
    f"{part}_{kind}"
    for part in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


def finish_attention(attention: Attention, cfg: Any, role: str, layer: int) -> None:
    """Set the attention's role and build what drops and what aggregates its heads.

    Call it after the layer is built: fairseq 0.12.2's encoder layer reads the shape of
    ``out_proj.weight`` in its constructor, and routing has no such weight.
    """
    attention.role = role
    if cfg.drop_head > 0:
        schedule = cfg.drop_head_fall_updates, cfg.drop_head_rise_updates
        attention.drop_head = DropHead(cfg.drop_head, *schedule)
    if not aggregates_heads(cfg, role, layer):
        return
    if cfg.head_aggregation == "gated":
        attention.head_gate = HeadGate(attention.embed_dim, attention.call_heads())
    elif cfg.head_aggregation == "talking":
        attention.score_mixing = HeadMixing(attention.call_heads())
        attention.weight_mixing = HeadMixing(attention.call_heads())
    elif cfg.head_aggregation == "composed":
        attention.composition = HeadComposition(
            attention.embed_dim,
            attention.memory_dim(),
            attention.call_heads(),
            cfg.head_composition_rank,
        )
    else:
        attention.out_proj = HeadRouting(
            attention.embed_dim,
            attention.num_heads,
            routing=cfg.head_aggregation,
            num_capsules=cfg.head_capsules,
            iterations=cfg.routing_iterations,
            normalize=cfg.head_capsule_norm,
            backend=cfg.routing_backend,
            input_dim=attention.out_proj.in_features,
            coefficients=cfg.routing_coefficients,
        )


def attention_settings(cfg: Any) -> Dict[str, Any]:
    """Return the settings that all attentions share: dropout and noise of quantisation."""
    noise = cfg.quant_noise
    dropout = cfg.attention_dropout
    return {"dropout": dropout, "q_noise": noise.pq, "qn_block_size": noise.pq_block_size}


class Pass:
    """A layer in one pass, whose residual connections are attention residuals.

    The host's forward function runs with it in place of the layer. The layer stays as it is, so
    that several threads may use it, and the states of the pass are its arguments and results.
    """

    def __init__(self, layer: Any, connection: LayerConnection, states: Sequence[Tensor]) -> None:
        self.layer, self.connection, self.states = layer, connection, list(states)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def residual_connection(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return the next sublayer's input after the output x of this one."""
        return self.connection.follow(x, self.states)


class HostLayer(nn.Module):
    """A layer of the host that runs alone or within the connection of a stack.

    With ``--checkpoint-activations``, as in fairseq, it keeps its input and runs again for its
    gradients (Chen et al. 2016); with ``--offload-activations`` the input waits in the memory of
    the CPU. What an observer measures is measured again, but recorded once.
    """

    host: Any  # its class in fairseq
    side: str  # encoder or decoder

    def __init__(self, cfg: Any, number: int, **settings: Any) -> None:
        self.number = number  # 1 at the bottom
        super().__init__(cfg, **settings)
        self.checkpoints, self.offloads = cfg.checkpoint_activations, cfg.offload_activations

    def forward(self, *inputs: Any, **settings: Any) -> Any:
        """Run the layer; with a connection, also return the states after it."""
        if not (self.checkpoints and self.training and torch.is_grad_enabled()):
            return self.run(*inputs, **settings)
        with torch.autograd.graph.save_on_cpu() if self.offloads else nullcontext():
            return checkpoint(
                self.run, *inputs, use_reentrant=False, context_fn=measured_once, **settings
            )

    def run(
        self,
        *inputs: Any,
        connection: Optional[LayerConnection] = None,
        below: Sequence[Tensor] = (),
        **settings: Any,
    ) -> Any:
        """Run the layer of the host once."""
        if connection is None:
            return self.host.forward(self, *inputs, **settings)
        run = Pass(self, connection, below)
        return self.host.forward(run, *inputs, **settings), tuple(run.states)

    def build_self_attention(self, embed_dim: int, cfg: Any, **_: bool) -> Attention:
        """Build the self-attention that the switches choose for this layer."""
        heads, settings = getattr(cfg, self.side).attention_heads, attention_settings(cfg)
        if not routes_scores(cfg, self.side, self.number):
            return HostedAttention(embed_dim, heads, **settings)
        routing = getattr(cfg, f"capsule_routing_{self.side}")
        return HostedCapsuleAttention(
            embed_dim,
            heads,
            vertical=routing in ("vertical", "both"),
            horizontal=routing in ("horizontal", "both"),
            iterations=cfg.routing_iterations,
            backend=cfg.routing_backend,
            **settings,
        )


def measured_once() -> Tuple[ContextManager[Any], ContextManager[Any]]:
    """Return the contexts in which a checkpointed layer runs first, and again for nobody."""
    observer, records = open_observer(), open_records()

    @contextmanager
    def again() -> Iterator[None]:
        with ExitStack() as stack:
            if isinstance(observer, DisagreementRecord):
                stack.enter_context(observe_attentions(observer.again()))
            if records is not None:
                stack.enter_context(record_routing())
            yield

    return nullcontext(), again()


class TransformerEncoderLayer(HostLayer, TransformerEncoderLayerBase):
    """fairseq's encoder layer with our attention."""

    host, side = TransformerEncoderLayerBase, "encoder"

    # fairseq 0.12.2 would copy the weights for its fast path here, from an out_proj.weight that a
    # routed layer does not have. Without the copies the fast path stays off.
    _load_from_state_dict = nn.Module._load_from_state_dict

    def __init__(self, cfg: Any, number: int, return_fc: bool = False) -> None:
        super().__init__(cfg, number, return_fc=return_fc)
        for name in FAST_PATH_COPIES:
            self._parameters.pop(name, None)
        self.BT_version = False
        finish_attention(self.self_attn, cfg, "enc-self", number)

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        """Also drop the weight copies in checkpoints of fairseq 0.12.2's own Transformer."""
        super().upgrade_state_dict_named(state_dict, name)
        for copy in FAST_PATH_COPIES:
            state_dict.pop(f"{name}.{copy}", None)


class TransformerDecoderLayer(HostLayer, TransformerDecoderLayerBase):
    """fairseq's decoder layer with our attention."""

    host, side = TransformerDecoderLayerBase, "decoder"

    def __init__(self, cfg: Any, number: int, no_encoder_attn: bool = False) -> None:
        super().__init__(cfg, number, no_encoder_attn=no_encoder_attn)
        finish_attention(self.self_attn, cfg, "dec-self", number)
        if self.encoder_attn is not None:
            finish_attention(self.encoder_attn, cfg, "enc-dec", number)

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> Attention:
        sizes = embed_dim, cfg.decoder.attention_heads
        settings = {"source_dim": cfg.encoder.embed_dim, **attention_settings(cfg)}
        if cfg.mlmha != "none":
            sources = cfg.mlmha_sources or cfg.encoder.layers
            return HostedMultiLayerAttention(*sizes, sources, cfg.mlmha, **settings)
        if cfg.layer_aggregation == "transparent":
            return HostedBlockAttention(*sizes, block=self.number - 1, **settings)
        return HostedAttention(*sizes, cross=True, **settings)

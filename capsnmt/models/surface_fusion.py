"""The decoder with SurfaceFusion (Liu et al. 2021)."""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from capsnmt.models.attention import HostedSurfaceAttention, IncrementalState
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.layers import attention_settings
from capsnmt.models.stacks import attention_masks
from capsnmt.modules.surface_fusion import fused_log_probs


class SurfaceFusionDecoder(TransformerDecoder):
    """A decoder whose words are also predicted from the source embeddings that it attends to.

    Its features are ``[B, T, 2 d]``: those of the Transformer, then those of the surface. Its
    output is the log-probabilities of :func:`.fused_log_probs`.

    **D**: the query is what the output projection reads, after the final LayerNorm of pre-norm. In
    the authors' code, which is for post-norm, there is none.

    **D**: the embeddings have a dropout of their own, of the same probability as the encoder's.
    """

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        self.source_dim: int = cfg.encoder.embed_dim
        self.surface_weight: float = cfg.surface_fusion
        settings = attention_settings(cfg)
        self.surface = HostedSurfaceAttention(self.output_embed_dim, self.source_dim, **settings)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[IncrementalState] = None,
        *args: Any,
        **kwargs: Any,
    ) -> Tuple[Tensor, Dict[str, Any]]:
        """Decode as the Transformer, and attend to the embeddings of the source."""
        assert encoder_out is not None
        features, extra = super().extract_features(
            prev_output_tokens, encoder_out, incremental_state, *args, **kwargs
        )
        # of several sources or mixtures, the last is of the top layer
        encoded = encoder_out["encoder_out"][0][..., -self.source_dim :]
        embedding = self.dropout_module(encoder_out["encoder_embedding"][0]).transpose(0, 1)
        memory = torch.cat([encoded.detach(), embedding.type_as(encoded)], dim=-1)
        masks = attention_masks(encoder_out)
        surface, _ = self.surface(
            features.detach().transpose(0, 1),
            memory,
            memory,
            masks[0] if masks else None,
            incremental_state,
            need_weights=False,
        )
        return torch.cat([features, surface.transpose(0, 1).type_as(features)], dim=-1), extra

    def parts(self, features: Tensor) -> List[Tuple[float, Tensor]]:
        """Return the features ``[..., d]`` of the two distributions, with their weights."""
        of_target, of_source = features.chunk(2, dim=-1)
        return [(1 - self.surface_weight, of_target), (self.surface_weight, of_source)]

    def output_layer(self, features: Tensor) -> Tensor:
        """Return the log-probabilities of features ``[B, T, 2 d]``."""
        of_target, of_source = (
            TransformerDecoderBase.output_layer(self, part) for _, part in self.parts(features)
        )
        return fused_log_probs(of_target, of_source, self.surface_weight)

    def get_normalized_probs_scriptable(
        self, net_output: Any, log_probs: bool, sample: Optional[Dict[str, Tensor]] = None
    ) -> Tensor:
        """Return the output, which is log-probabilities already, in fp32 as the host does."""
        scores: Tensor = net_output[0].float()
        return scores if log_probs else scores.exp()

"""The composable Transformer: each mechanism is a switch; with all off it is fairseq's."""

from __future__ import annotations

import argparse
import itertools
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn as nn
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from omegaconf import OmegaConf
from torch import Tensor

from capsnmt.checkpoints.initialisation import initialise_from
from capsnmt.errors import ConfigurationError
from capsnmt.models.config import MECHANISMS
from capsnmt.models.inference import convert_linear_maps
from capsnmt.models.layers import TransformerDecoderLayer, TransformerEncoderLayer, wrap_layer
from capsnmt.models.stacks import stack_aggregation, stack_connection
from capsnmt.modules.autocast import autocast_of, require_bf16
from capsnmt.modules.layer_aggregation import TransparentMixture
from capsnmt.modules.stack_layers import DecoderLayers, EncoderLayers


class TransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder with our layers, their connections and their aggregation.

    The output is ``[T, B, n d]`` instead of the top layer's ``[T, B, d]``: the concatenated
    features of all sources of multi-layer attention, or of all mixtures of transparent attention.
    It is one tensor, so everything that the host does to an encoder's output remains correct.

    **D**: where the stack ends with a LayerNorm (pre-norm), it is applied to each layer's output.
    """

    layers: nn.ModuleList

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers
        self.autocast: str = cfg.autocast
        self.layer_aggregation = stack_aggregation(cfg, "encoder")
        self.transparent: Optional[nn.Module] = None
        if cfg.layer_aggregation == "transparent":
            self.transparent = TransparentMixture(cfg.encoder.layers + 1, cfg.decoder.layers)
        self.num_sources = 1
        if cfg.mlmha != "none":
            self.num_sources = cfg.mlmha_sources or cfg.encoder.layers
        self.masked_source: int = cfg.mlmha_mask_source
        self.connection = stack_connection(cfg, "encoder")
        if self.connection is not None or (self.reads_all_layers and self.encoder_layerdrop > 0):
            self.layers = EncoderLayers(
                self.encoder_layerdrop, self.layers.children(), self.connection
            )

    @property
    def reads_all_layers(self) -> bool:
        """Whether the decoder receives anything other than the top layer's output."""
        aggregates = self.layer_aggregation is not None or self.transparent is not None
        return aggregates or self.num_sources > 1 or self.masked_source > 0

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        layer = TransformerEncoderLayer(cfg, next(self.numbers), return_fc=self.return_fc)
        return wrap_layer(layer, cfg)

    def train(self, mode: bool = True) -> TransformerEncoder:
        if mode and self.masked_source:
            raise ConfigurationError(
                f"--mlmha-mask-source: {self.masked_source}: sources are masked at generation "
                f"only: train without it, then set it by --model-overrides"
            )
        if mode:
            require_bf16(self.autocast, next(self.parameters()).device.type)
        return super().train(mode)

    def forward(self, *args: Any, **kwargs: Any) -> Dict[str, List[Optional[Tensor]]]:
        """Encode under ``--autocast``; the output is as precise as the embedding."""
        with autocast_of(self, self.autocast):
            encoded = super().forward(*args, **kwargs)
        encoded["encoder_out"] = [
            encoded["encoder_out"][0].type_as(encoded["encoder_embedding"][0])
        ]
        return encoded

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
    ) -> Dict[str, List[Optional[Tensor]]]:
        encoded = super().forward_scriptable(
            src_tokens, src_lengths, return_all_hiddens or self.reads_all_layers, token_embeddings
        )
        if self.reads_all_layers:
            encoded["encoder_out"] = [self.hand_over(encoded["encoder_states"])]
            if not return_all_hiddens:
                encoded.update(encoder_states=[], fc_results=[])
        return encoded

    def hand_over(self, states: List[Tensor]) -> Tensor:
        """Return the decoder's input, ``[T, B, n d]``, from the embeddings and H^1..H^L."""
        return self.combine(self.normalise(states))

    def normalise(self, states: List[Tensor]) -> List[Tensor]:
        """Return the states as the decoder reads them: normalised, where the stack ends so."""
        return states if self.layer_norm is None else [self.layer_norm(state) for state in states]

    def combine(self, states: List[Tensor]) -> Tensor:
        """Return the decoder's input, ``[T, B, n d]``, from normalised states."""
        if self.transparent is not None:
            return self.transparent(states)
        sources = states[1:]
        if self.layer_aggregation is not None:
            sources[-1] = self.layer_aggregation(states[1:])
        if self.masked_source:
            sources[self.masked_source - 1] = torch.zeros_like(sources[self.masked_source - 1])
        return torch.cat(sources[-self.num_sources :], dim=-1)


class TransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with our layers, their connections and their aggregation.

    **D**: where the stack ends with a LayerNorm (pre-norm), it is applied to each layer's output.
    """

    layers: nn.ModuleList

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        self.numbers = itertools.count(1)
        super().__init__(cfg, *args, **kwargs)
        del self.numbers
        self.autocast: str = cfg.autocast
        self.layer_aggregation = stack_aggregation(cfg, "decoder")
        self.connection = stack_connection(cfg, "decoder")
        reads_all_layers = self.layer_aggregation is not None
        if self.connection is not None or (reads_all_layers and self.decoder_layerdrop > 0):
            self.layers = DecoderLayers(
                self.decoder_layerdrop, self.layers.children(), self.connection
            )

    def forward(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Dict]:
        """Decode under ``--autocast``; it includes the output projection."""
        with autocast_of(self, self.autocast):
            return super().forward(*args, **kwargs)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(TransformerDecoderLayer(cfg, next(self.numbers), no_encoder_attn), cfg)

    def extract_features_scriptable(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Dict]:
        features, extra = super().extract_features_scriptable(*args, **kwargs)
        if self.layer_aggregation is not None:
            states = extra["inner_states"][1:]
            if self.layer_norm is not None:
                states = [self.layer_norm(state) for state in states]
            features = self.layer_aggregation(states).transpose(0, 1)  # batch first, as the host
            if self.project_out_dim is not None:
                features = self.project_out_dim(features)
        return features, extra


@register_model("capsnmt_transformer")
class CapsnmtTransformer(TransformerModel):
    """The translation model of the plugin; its architectures are presets of its switches.

    With every switch off it is fairseq's ``transformer``: same parameters under the same names,
    same outputs; stock checkpoints load.

    Attributes:
        num_updates: the updates before the current one, for a criterion that depends on them.
    """

    num_updates: int = 0

    def set_num_updates(self, num_updates: int) -> None:
        """Take the number of updates, which fairseq's trainer sets before each of them."""
        super().set_num_updates(num_updates)
        self.num_updates = num_updates

    @classmethod
    def add_args(cls, parser: Any) -> None:
        super().add_args(parser)
        for group in MECHANISMS:
            # no defaults: a preset applies where the user has set no attribute
            gen_parser_from_dataclass(parser, group(), delete_default=True)

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: Any,
        checkpoint_file: str = "model.pt",
        data_name_or_path: Optional[str] = None,
        **kwargs: Any,
    ) -> Any:
        """Load a translation model with fairseq's hub interface.

        Args:
            model_name_or_path: the folder of a finished run, from which the checkpoint, the
                dictionaries, the tokeniser and the subwords are taken; several are an ensemble. Or,
                as in fairseq, a folder with ``checkpoint_file``.
            checkpoint_file: checkpoint in a folder that is not a run; several separated by colons.
            data_name_or_path: of a run, the folder of capsnmt-prepare if it has moved; otherwise
                the folder with the dictionaries.
            kwargs: settings of fairseq, such as ``beam`` and ``lenpen``, or ``bpe`` and
                ``bpe_codes`` of a model that is not a run; of a run also ``device``.

        Raises:
            ConfigurationError: the run, checkpoint or data cannot be used.
        """
        from capsnmt.translation import pretrained

        several = isinstance(model_name_or_path, (list, tuple))
        if several or pretrained.is_run(model_name_or_path, checkpoint_file):
            return pretrained.from_run(model_name_or_path, data_name_or_path, **kwargs)
        folder, data = str(model_name_or_path), str(data_name_or_path or ".")
        pretrained.check_checkpoints(folder, checkpoint_file)
        return super().from_pretrained(folder, checkpoint_file, data, **kwargs)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> nn.Module:
        saved = args
        if OmegaConf.is_config(args):
            # from a configuration of fairseq-hydra-train, fairseq reads its own options only
            args = argparse.Namespace(**OmegaConf.to_container(args, resolve=True))
        model = super().build_model(args, task)
        checkpoint: Optional[str] = args.init_from
        if checkpoint:
            initialise_from(model, checkpoint)
            # Only training starts from it. At generation the model gets its own checkpoint, perhaps
            # on a machine without this one.
            saved.init_from = None
        return model

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Prepare for decoding: under ``--autocast``, convert the linear maps once."""
        super().make_generation_fast_(**kwargs)
        convert_linear_maps(self)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> TransformerEncoder:
        return TransformerEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> TransformerDecoder:
        return TransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

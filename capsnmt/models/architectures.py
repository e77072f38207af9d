"""The named architectures: presets of the model's switches, each in four sizes."""

import argparse
from typing import Any, Callable, Dict

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.utils import safe_hasattr
from omegaconf import OmegaConf

from capsnmt.models import transformer  # noqa: F401  the model must be registered first
from capsnmt.models.validation import complete, validate

MODEL = "capsnmt_transformer"

# transformer_em_routing is the "Effective Aggregation" of Li et al. 2019.
PRESETS: Dict[str, Dict[str, Any]] = {
    "capsnmt_transformer": {},
    "transformer_em_routing": {
        "head_aggregation": "em",
        "head_aggregation_attention": "enc-self",
        "head_aggregation_encoder_layers": "1,2",
    },
    "transformer_dlcl_routing": {"layer_aggregation": "em-routing"},
    "transformer_dlcl": {"layer_aggregation": "dlcl"},
    "transformer_mlmha": {"mlmha": "M-10"},
    "capsule_transformer": {
        "capsule_routing_encoder": "both",
        "capsule_routing_decoder": "horizontal",
    },
}

# Ampomah et al. 2020, section 6, recommend M-00 for shallow networks.
OF_SIZE: Dict[str, Dict[str, Any]] = {"transformer_mlmha_iwslt": {"mlmha": "M-00"}}


def _sizes(width: int, ffn: int, heads: int, layers: int, **others: Any) -> Dict[str, Any]:
    stack = {"embed_dim": width, "ffn_embed_dim": ffn, "attention_heads": heads, "layers": layers}
    sides = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in stack.items()}
    return {**sides, **others}


SIZES: Dict[str, Dict[str, Any]] = {
    "": _sizes(512, 2048, 8, 6),
    "_big": _sizes(1024, 4096, 16, 6, dropout=0.3),
    "_iwslt": _sizes(256, 1024, 4, 4),
    "_tiny": _sizes(128, 256, 4, 3),
}


def architecture(preset: str, size: str) -> Callable[[Any], None]:
    """Return the function that completes and checks the arguments of one architecture.

    fairseq calls it at the end of parsing (and again when a model is built from a checkpoint), so
    a bad value is reported before any data is read.
    """

    def configure(args: Any) -> None:
        if OmegaConf.is_config(args):  # fairseq-hydra-train
            # omegaconf 2.0 returns None for an absent key, whatever the default of getattr
            # what switches exclude of other groups: precision, another start, and criterion
            groups = ("common", "checkpoint", "criterion")
            *plain, criterion = map(args._get_root().get, groups)
            others: Dict[str, Any] = {}
            for group in filter(None, plain):
                others.update(OmegaConf.to_container(group, resolve=True))
            others.update({"criterion": criterion._name} if criterion else {})
            flat = argparse.Namespace(**{**others, **OmegaConf.to_container(args, resolve=True)})
            configure(flat)
            for name, value in vars(flat).items():
                if name in args or name not in others:
                    args[name] = value
            return
        for name, value in SIZES[size].items():
            if not safe_hasattr(args, name):
                setattr(args, name, value)
        base_architecture(args)
        complete(args, {**PRESETS[preset], **OF_SIZE.get(preset + size, {})})
        validate(args)

    return configure


for _preset in PRESETS:
    for _size in SIZES:
        register_model_architecture(MODEL, _preset + _size)(architecture(_preset, _size))

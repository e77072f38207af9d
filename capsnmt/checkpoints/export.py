"""Checkpoints of fairseq's own ``transformer`` from those of models without mechanisms."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Dict, Mapping

import capsnmt.plugin  # noqa: F401  # isort: skip  (quietens fairseq)

from fairseq.models import ARCH_MODEL_NAME_REGISTRY

from capsnmt.checkpoints.load import CheckpointError
from capsnmt.models.architectures import MODEL
from capsnmt.models.config import (
    MECHANISMS,
    CompilationConfig,
    InitialisationConfig,
    PrecisionConfig,
    RoutingConfig,
    defaults,
    flag,
    switches,
)

STOCK = "transformer"
# they change how a model is computed or how it starts, not which function it is
NO_MECHANISM = (RoutingConfig, PrecisionConfig, CompilationConfig, InitialisationConfig)
# what only training reads; the names may be those of the plugin
TRAINING = ("criterion", "optimizer", "lr_scheduler")


def stock_checkpoint(state: Mapping[str, Any], path: Path) -> Dict[str, Any]:
    """Return a checkpoint of ``capsnmt_transformer`` as one of fairseq's ``transformer``.

    The parameters are unchanged: with every switch off they have the same names and meaning.

    **D**: ``--autocast`` is dropped, so other programs compute in the precision of the parameters.
    The optimizer's state is dropped, as in an average.

    Args:
        state: what :func:`~capsnmt.checkpoints.load.load_checkpoint` returns.
        path: where it is from, for messages.

    Raises:
        CheckpointError: it holds another model, or a mechanism that fairseq's Transformer lacks.
    """
    cfg = state.get("cfg")
    if not isinstance(cfg, Mapping) or not cfg.get("model"):
        raise CheckpointError(f"{path} holds no configuration: not saved by fairseq-train")
    args = _flat(cfg)
    _check_model(args, path)
    stock = {name: value for name, value in args.items() if name not in defaults()}
    stock.update(arch=STOCK, _name=STOCK, user_dir=None)
    kept = {name: section for name, section in cfg.items() if name not in TRAINING}
    common = {**(cfg.get("common") or {}), "user_dir": None}
    kept.update(common=common, model=argparse.Namespace(**stock))
    others = {name: value for name, value in state.items() if name != "last_optimizer_state"}
    return {**others, "args": None, "cfg": kept}


def _flat(cfg: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the model's arguments as ``fairseq-train`` saves them.

    A configuration of ``fairseq-hydra-train`` keeps those of the task, which converters need, in a
    section of their own.
    """
    model = cfg["model"]
    if isinstance(model, argparse.Namespace):
        return dict(vars(model))
    task = cfg.get("task") or {}
    return {**task, **model, "task": task.get("_name"), "arch": model.get("_name")}


def _check_model(args: Mapping[str, Any], path: Path) -> None:
    """Raise unless the arguments are those of a ``capsnmt_transformer`` without mechanisms."""
    arch = args.get("arch")
    if ARCH_MODEL_NAME_REGISTRY.get(arch) != MODEL:
        raise CheckpointError(
            f"{path} is a model of --arch {arch}: give one of --arch {MODEL}, in any size"
        )
    for group in MECHANISMS:
        for name, default in switches(group).items():
            value = args.get(name, default)
            if group not in NO_MECHANISM and value != default:
                raise CheckpointError(
                    f"{path} uses {flag(name)} {value}, which fairseq's Transformer does not have: "
                    "export a model without mechanisms, and translate with this one by "
                    "capsnmt-translate"
                )

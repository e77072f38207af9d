"""The precision of a run, as flags of fairseq-train."""

from __future__ import annotations

import argparse
from typing import List

from capsnmt.cli import ConfigurationError
from capsnmt.launch.config import Experiment
from capsnmt.launch.devices import Device


def precision_flags(experiment: Experiment, device: Device) -> List[str]:
    """Return the flags of the precision that the configuration asks for.

    **D**: ``fp16`` is for GPUs; on a CPU it is fp32. The checkpoint has the setting of ``bf16``, so
    the later stages need no flag.

    Raises:
        ConfigurationError: the model overflows the fp16 that the configuration asks for.
    """
    precision = experiment["precision"]
    if precision == "auto":
        precision = choose_precision(experiment, device)
    if precision == "bf16":
        return ["--autocast", "bf16"]
    if precision != "fp16" or not device.gpus:
        return []
    if overflows_fp16(experiment):
        raise ConfigurationError(
            f"{experiment.where('precision')}: precision: fp16: --layer-aggregation dlcl and dense "
            f"overflow it: set bf16, fp32 or auto"
        )
    return ["--fp16"]


def choose_precision(experiment: Experiment, device: Device) -> str:
    """Return the precision of ``auto`` on this machine.

    **D**: fp16 on a GPU, as our configurations; bf16 for a model that overflows it, if the GPU has
    it. On a CPU bf16 if it has the instructions (docs/precision.md has the measurements), for the
    architectures that have the switch. Otherwise fp32.
    """
    import torch
    from fairseq.models import ARCH_MODEL_REGISTRY

    import capsnmt.plugin  # noqa: F401  registers our architectures
    from capsnmt.modules.autocast import bf16_obstacle

    if device.gpus:
        if not overflows_fp16(experiment):
            return "fp16"
        here = torch.cuda.is_available()  # a plan may be made on another machine
        return "fp32" if here and bf16_obstacle("cuda") else "bf16"
    ours = ARCH_MODEL_REGISTRY[experiment["arch"]].__module__.startswith("capsnmt.")
    return "bf16" if ours and bf16_obstacle("cpu") is None else "fp32"


def overflows_fp16(experiment: Experiment) -> bool:
    """Return whether ``--layer-aggregation``, of the row or of its preset, cannot train in fp16."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    import capsnmt.plugin  # noqa: F401  registers our architectures
    from capsnmt.modules.layer_aggregation import CONNECTIONS

    preset = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[experiment["arch"]](preset)
    chosen = getattr(preset, "layer_aggregation", "none")
    return (experiment["train.layer-aggregation"] or chosen) in CONNECTIONS


def check_precision(experiment: Experiment, device: Device) -> None:
    """Raise if this machine has no bf16 and the configuration asks for it.

    Raises:
        ConfigurationError: naming the obstacle and the origin of the setting.
    """
    if experiment["precision"] != "bf16":
        return
    from capsnmt.modules.autocast import bf16_obstacle

    obstacle = bf16_obstacle("cuda" if device.gpus else "cpu")
    if obstacle is not None:
        raise ConfigurationError(
            f"{experiment.where('precision')}: precision: bf16: {obstacle}: set fp32 or auto"
        )

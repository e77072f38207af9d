"""The precision of a run, as flags of fairseq-train."""

from __future__ import annotations

from typing import List

from capsnmt.errors import ConfigurationError
from capsnmt.experiment.config import Experiment
from capsnmt.experiment.devices import Device


def precision_flags(experiment: Experiment, device: Device) -> List[str]:
    """Return the flags of the precision that the configuration asks for.

    **D**: ``fp16`` is for GPUs; on a CPU it is fp32. The checkpoint has the setting of ``bf16``, so
    the later stages need no flag.
    """
    precision = experiment["precision"]
    if precision == "auto":
        precision = choose_precision(experiment["arch"], device)
    if precision == "bf16":
        return ["--autocast", "bf16"]
    return ["--fp16"] if precision == "fp16" and device.gpus else []


def choose_precision(arch: str, device: Device) -> str:
    """Return the precision of ``auto`` on this machine.

    **D**: fp16 on a GPU, as our configurations. On a CPU bf16 if it has the instructions
    (docs/precision.md has the measurements), for the architectures that have the switch; fp32
    otherwise.
    """
    if device.gpus:
        return "fp16"
    from fairseq.models import ARCH_MODEL_REGISTRY

    import capsnmt.plugin  # noqa: F401  registers our architectures
    from capsnmt.modules.autocast import bf16_obstacle

    ours = ARCH_MODEL_REGISTRY[arch].__module__.startswith("capsnmt.")
    return "bf16" if ours and bf16_obstacle("cpu") is None else "fp32"


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

"""Completion of the switches from a preset: missing ones are set, those without effect refused."""

from __future__ import annotations

import sys
from typing import Any, Dict

from fairseq.utils import safe_hasattr

from capsnmt.models.config import MECHANISMS, defaults
from capsnmt.models.selection import parse_layers
from capsnmt.models.switches import check_values, idle_switches, refuse_idle


def complete(args: Any, preset: Dict[str, Any]) -> None:
    """Set every switch missing in ``args`` from the preset, or else to its default.

    A value of the preset that has no effect given the other switches is dropped. A switch that the
    user has set must have an effect.
    """
    given = {name for name in defaults() if safe_hasattr(args, name)}
    for name, default in defaults().items():
        if name not in given:
            setattr(args, name, _of_preset(args, name, preset) if name in preset else default)
    check_values(args, *MECHANISMS)
    if args.layer_aggregation == "transparent" and "layer_aggregation_side" not in given:
        args.layer_aggregation_side = "encoder"
    for name, reason in idle_switches(args, *MECHANISMS):
        if name in given:
            refuse_idle(args, name, reason)
        setattr(args, name, defaults()[name])


def _of_preset(args: Any, name: str, preset: Dict[str, Any]) -> Any:
    """Return a value of the preset; of a list of layers, those that the stack has.

    **D**: layers that a smaller model does not have are not an error of its user.
    """
    value = preset[name]
    if not name.endswith("_layers"):
        return value
    side = "encoder" if "encoder" in name else "decoder"
    layers = int(getattr(args, f"{side}_layers"))
    named = parse_layers(value, sys.maxsize, name) if value != "all" else frozenset()
    if all(layer <= layers for layer in named):
        return value
    return ",".join(str(layer) for layer in sorted(named) if layer <= layers) or "all"

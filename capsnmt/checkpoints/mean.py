"""The mean of several checkpoints of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.checkpoints.load import CheckpointError, load_checkpoint

# fairseq's sinusoidal positions save a buffer of one number that it never sets or reads
UNINITIALISED = "_float_tensor"


def average_checkpoints(paths: Sequence[Path]) -> Dict[str, Any]:
    """Return the last checkpoint with its parameters replaced by ``(1/n) sum_i theta_i``.

    The sum is computed in fp64, and the mean is rounded once, to the dtype of the last checkpoint.
    Integers and other entries are those of the last checkpoint. One checkpoint and the sum are in
    memory at a time.

    **D**: the optimizer's state and the moving average of the weights belong to one checkpoint, so
    the result does not have them. All other entries of the last checkpoint are kept.

    Args:
        paths: at least one checkpoint of the same model.

    Raises:
        CheckpointError: a checkpoint cannot be loaded, has other parameters or shapes, or has NaN
            or infinite weights.
    """
    sums: Dict[str, Tensor] = {}
    shapes: Dict[str, Tuple[int, ...]] = {}
    state: Dict[str, Any] = {}
    for path in paths:
        state = {}  # frees the previous checkpoint before the next is loaded
        state = load_checkpoint(path)
        shapes = shapes or {key: _shape(value) for key, value in state["model"].items()}
        _check_same_parameters(path, state["model"], paths[0], shapes)
        _check_finite(path, state["model"])
        _add(sums, state["model"])
    for key, total in sums.items():
        # in place, so that tied parameters stay one tensor in the file
        state["model"][key].copy_(total / len(paths))
    state.pop("last_optimizer_state", None)
    extra_state = dict(state.get("extra_state") or {})
    for of_one_checkpoint in ("ema", "ema_fp32_params"):
        extra_state.pop(of_one_checkpoint, None)
    extra_state["averaged_checkpoints"] = [path.name for path in paths]
    return {**state, "extra_state": extra_state}


def _add(sums: Dict[str, Tensor], model: Mapping[str, Any]) -> None:
    """Add the floating-point entries of a model to the sums, in fp64."""
    for key, value in model.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            if key not in sums:
                sums[key] = torch.zeros(value.shape, dtype=torch.float64)
            sums[key] += value


def _check_finite(path: Path, model: Mapping[str, Any]) -> None:
    """Raise if a floating-point entry of a model holds NaN or infinity."""
    for key, value in model.items():
        if key.endswith(UNINITIALISED) or not isinstance(value, Tensor):
            continue
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise CheckpointError(
                f"{path}: {key} has NaN or infinite weights: training diverged: average earlier "
                "checkpoints, or train again with a lower learning rate"
            )


def _check_same_parameters(
    path: Path, model: Mapping[str, Any], first: Path, shapes: Mapping[str, Tuple[int, ...]]
) -> None:
    """Raise if a model has other parameters or shapes than the first one."""
    for key in sorted(model.keys() ^ shapes.keys()):
        have, lack = (path, first) if key in model else (first, path)
        raise CheckpointError(f"{lack} has no {key}, which {have} has: they are different models")
    for key, shape in shapes.items():
        if shape != _shape(model[key]):
            raise CheckpointError(
                f"{path}: {key} has shape {list(_shape(model[key]))}, but {list(shape)} in "
                f"{first}: they are different models"
            )


def _shape(value: Any) -> Tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()

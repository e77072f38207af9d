"""Checkpoint averaging: one model whose parameters are the mean of those of several checkpoints.

``capsnmt-average`` averages the checkpoints that fairseq-train wrote during one run: the last by
update, the last by epoch, or the best by the validation metric. Averaging the last checkpoints is
what Vaswani et al. (2017, section 6.1) report their Transformers with.

fairseq's own script (``scripts/average_checkpoints.py``) is no part of its wheels, and cannot load
checkpoints on torch >= 2.6.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from capsnmt.arguments import positive
from capsnmt.checkpoints.storage import CheckpointError, load_checkpoint, save_checkpoint
from capsnmt.errors import ConfigurationError

# the names fairseq.checkpoint_utils.save_checkpoint gives; shards of a model match none of them
BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
BEST = re.compile(r"checkpoint\.best_(.+)_(-?\d+\.\d+)\.pt")


def _numbered(folder: Path, pattern: re.Pattern[str]) -> List[Tuple[re.Match[str], Path]]:
    """The files of a folder whose whole name matches."""
    matched = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return [(match, path) for match, path in matched if match]


def _take(folder: Path, kind: str, ranked: Sequence[Path], count: int) -> List[Path]:
    """The last ``count`` of ``ranked``, or one line that says what the folder has."""
    if len(ranked) < count:
        raise ConfigurationError(
            f"{folder} has {len(ranked)} checkpoints {kind}, {count} were asked for: ask for "
            "fewer, or keep more of them when training (--keep-interval-updates, "
            "--keep-last-epochs, --keep-best-checkpoints)"
        )
    return list(ranked[-count:])


def last_checkpoints(
    folder: Path, pattern: re.Pattern[str], count: int, upper_bound: Optional[int] = None
) -> List[Path]:
    """The ``count`` checkpoints with the highest number, lowest first.

    **D**: as in fairseq's script, "by update" means the files named by update. Where an epoch ends
    at a multiple of ``--save-interval-updates``, fairseq names that one checkpoint by epoch only.

    Args:
        folder: the ``--save-dir`` of a run.
        pattern: ``BY_UPDATE`` or ``BY_EPOCH``.
        count: how many.
        upper_bound: ignore checkpoints with a higher number of updates or epochs.

    Raises:
        ConfigurationError: there are fewer.
    """
    numbered = sorted((int(match[1]), path) for match, path in _numbered(folder, pattern))
    ranked = [path for number, path in numbered if upper_bound is None or number <= upper_bound]
    kind = "named by update" if pattern is BY_UPDATE else "named by epoch"
    if upper_bound is not None:
        kind += f" up to {upper_bound}"
    return _take(folder, kind, ranked, count)


def best_checkpoints(folder: Path, count: int) -> List[Path]:
    """The ``count`` best checkpoints by validation metric, worst first.

    Whether the metric is better high or low is read from the run's own configuration
    (``--maximize-best-checkpoint-metric``).

    Args:
        folder: the ``--save-dir`` of a run trained with ``--keep-best-checkpoints``.
        count: how many.

    Raises:
        ConfigurationError: there are fewer, or they were ranked by more than one metric.
    """
    found = _numbered(folder, BEST)
    metrics = sorted({match[1] for match, _ in found})
    if len(metrics) > 1:
        raise ConfigurationError(
            f"{folder} has best checkpoints by {' and '.join(metrics)}, which cannot be compared: "
            "name the files to average"
        )
    ranked = sorted(((float(match[2]), path) for match, path in found), key=lambda pair: pair[0])
    if found and not maximises(found[0][1]):
        ranked.reverse()
    return _take(folder, "named best", [path for _, path in ranked], count)


def maximises(path: Path) -> bool:
    """Whether the run that wrote a checkpoint takes the highest validation metric as the best."""
    state = load_checkpoint(path)
    try:
        if state.get("cfg") is not None:
            return bool(state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"])
        return bool(state["args"].maximize_best_checkpoint_metric)
    except (AttributeError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} does not say whether its metric is maximised: name the files to average"
        ) from None


def _check_same_parameters(path: Path, model: Dict[str, Any], first: Path, seen: Any) -> None:
    """Raise for a model that has other parameters or shapes than the first one."""
    for key in sorted(model.keys() ^ seen.keys()):
        have, lack = (path, first) if key in model else (first, path)
        raise CheckpointError(f"{lack} has no {key}, which {have} has: they are different models")
    for key, shape in seen.items():
        if shape != _shape(model[key]):
            raise CheckpointError(
                f"{path}: {key} has shape {list(_shape(model[key]))}, but {list(shape)} in "
                f"{first}: they are different models"
            )


def _shape(value: Any) -> Tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


def _add(sums: Dict[str, Tensor], model: Dict[str, Any]) -> None:
    """Add a model's floating-point entries to the sums, in fp64."""
    for key, value in model.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            if key not in sums:
                sums[key] = torch.zeros(value.shape, dtype=torch.float64)
            sums[key] += value


def average_checkpoints(paths: Sequence[Path]) -> Dict[str, Any]:
    """The last checkpoint, its parameters replaced by ``(1/n) sum_i theta_i`` over all.

    The sum is taken in fp64 and the mean rounded once, to the last checkpoint's dtype; integer
    and other entries are the last's. One checkpoint and the sum are in memory at a time.

    **D**: the optimizer's state and the moving average of the weights belong to the last
    checkpoint alone, so the result does not have them; everything else of it stays.

    Args:
        paths: at least one checkpoint of the same model.

    Raises:
        CheckpointError: one cannot be loaded, or has other parameters or shapes.
    """
    sums: Dict[str, Tensor] = {}
    shapes: Dict[str, Tuple[int, ...]] = {}
    state: Dict[str, Any] = {}
    for path in paths:
        state = {}  # the last one is let go before the next is loaded
        state = load_checkpoint(path)
        shapes = shapes or {key: _shape(value) for key, value in state["model"].items()}
        _check_same_parameters(path, state["model"], paths[0], shapes)
        _add(sums, state["model"])
    for key, total in sums.items():
        # in place, so that tied parameters stay one tensor in the file
        state["model"][key].copy_(total / len(paths))
    state.pop("last_optimizer_state", None)
    extra_state = dict(state.get("extra_state") or {})
    for of_last_alone in ("ema", "ema_fp32_params"):
        extra_state.pop(of_last_alone, None)
    extra_state["averaged_checkpoints"] = [path.name for path in paths]
    return {**state, "extra_state": extra_state}


def select_checkpoints(args: argparse.Namespace) -> List[Path]:
    """The files that the command line names, or chooses from a folder.

    Raises:
        ConfigurationError: they do not exist, or a flag would have no effect.
    """
    chosen = [
        flag
        for flag, value in (
            ("--last-updates", args.last_updates),
            ("--last-epochs", args.last_epochs),
            ("--best", args.best),
        )
        if value is not None
    ]
    folder = args.inputs[0]
    if len(args.inputs) > 1 or not folder.is_dir():
        if chosen or args.upper_bound is not None:
            flag = chosen[0] if chosen else "--upper-bound"
            raise ConfigurationError(
                f"{flag} chooses checkpoints from one folder, but {folder} "
                + ("is not the only input" if folder.is_dir() else "is no folder")
                + ": give one folder, or drop the flag"
            )
        if len({path.resolve() for path in args.inputs}) < len(args.inputs):
            raise ConfigurationError("a checkpoint is given twice: name each once")
        return list(args.inputs)
    if not chosen:
        raise ConfigurationError(
            f"{folder} is a folder: say which of its checkpoints, by --last-updates N, "
            "--last-epochs N or --best K"
        )
    if args.best is not None:
        if args.upper_bound is not None:
            raise ConfigurationError("--upper-bound has no effect with --best: drop it")
        return best_checkpoints(folder, args.best)
    if args.last_updates is not None:
        return last_checkpoints(folder, BY_UPDATE, args.last_updates, args.upper_bound)
    return last_checkpoints(folder, BY_EPOCH, args.last_epochs, args.upper_bound)


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``capsnmt-average``."""
    parser = argparse.ArgumentParser(prog="capsnmt-average", description=__doc__.splitlines()[0])
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="DIR|FILE", help="one --save-dir, or checkpoints"
    )
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="the mean")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--last-updates", type=positive, metavar="N", help="the last N checkpoint_EPOCH_UPDATE.pt"
    )
    choice.add_argument(
        "--last-epochs", type=positive, metavar="N", help="the last N checkpointEPOCH.pt"
    )
    choice.add_argument(
        "--best", type=positive, metavar="K", help="the best K checkpoint.best_METRIC_VALUE.pt"
    )
    parser.add_argument(
        "--upper-bound",
        type=positive,
        metavar="U",
        help="ignore checkpoints after this update (--last-updates) or epoch (--last-epochs)",
    )
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-average``; the exit status.

    Raises:
        ConfigurationError: one line, and no output file.
    """
    args = build_parser().parse_args(argv)
    paths = select_checkpoints(args)
    if args.output.resolve() in {path.resolve() for path in paths}:
        raise ConfigurationError(
            f"--output {args.output} is one of the checkpoints to average: choose another name"
        )
    if args.output.is_dir() or not args.output.parent.is_dir():  # before the work, not after
        raise ConfigurationError(
            f"--output {args.output} must be a file in a folder that exists: make the folder, or "
            "choose another name"
        )
    save_checkpoint(average_checkpoints(paths), args.output)
    print(f"{args.output}: the mean of {len(paths)} checkpoints:", *(path.name for path in paths))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Which checkpoints of a run to average."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from capsnmt.checkpoints.load import CheckpointError, load_checkpoint
from capsnmt.cli import ConfigurationError

# the names that fairseq.checkpoint_utils.save_checkpoint gives; shards of a model match none
BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
BY_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
BEST = re.compile(r"checkpoint\.best_(.+)_(-?\d+\.\d+)\.pt")


def select_checkpoints(
    inputs: Sequence[Path],
    *,
    last_updates: Optional[int] = None,
    last_epochs: Optional[int] = None,
    best: Optional[int] = None,
    upper_bound: Optional[int] = None,
) -> List[Path]:
    """Return the checkpoints that are named, or those that are chosen from one folder.

    Args:
        inputs: one ``--save-dir``, or files.
        last_updates: number of checkpoints named by update.
        last_epochs: number of checkpoints named by epoch.
        best: number of best checkpoints; at most one of these three is given, and one of them if
            the input is a folder.
        upper_bound: ignore checkpoints with a higher number of updates or epochs.

    Raises:
        ConfigurationError: the folder has too few checkpoints, or an argument has no effect.
    """
    counts = {"--last-updates": last_updates, "--last-epochs": last_epochs, "--best": best}
    chosen = [flag for flag, count in counts.items() if count is not None]
    folder = inputs[0]
    if len(inputs) > 1 or not folder.is_dir():
        if chosen or upper_bound is not None:
            flag = chosen[0] if chosen else "--upper-bound"
            raise ConfigurationError(
                f"{flag} chooses checkpoints from one folder, but {folder} "
                + ("is not the only input" if folder.is_dir() else "is not a folder")
                + ": give one folder, or drop the flag"
            )
        if len({path.resolve() for path in inputs}) < len(inputs):
            raise ConfigurationError("a checkpoint is given twice: name each once")
        return list(inputs)
    if best is not None:
        if upper_bound is not None:
            raise ConfigurationError("--upper-bound has no effect with --best: drop it")
        return best_checkpoints(folder, best)
    if last_updates is not None:
        return last_checkpoints(folder, BY_UPDATE, last_updates, upper_bound)
    if last_epochs is not None:
        return last_checkpoints(folder, BY_EPOCH, last_epochs, upper_bound)
    raise ConfigurationError(
        f"{folder} is a folder: choose its checkpoints by --last-updates N, --last-epochs N or "
        "--best K"
    )


def last_checkpoints(
    folder: Path, pattern: re.Pattern[str], count: int, upper_bound: Optional[int] = None
) -> List[Path]:
    """Return the ``count`` checkpoints with the highest numbers, lowest first.

    **D**: as in fairseq's script, "by update" means the files named by update. If an epoch ends at
    a multiple of ``--save-interval-updates``, fairseq names that checkpoint by epoch only.

    Args:
        folder: ``--save-dir`` of a run.
        pattern: ``BY_UPDATE`` or ``BY_EPOCH``.
        count: number of checkpoints.
        upper_bound: ignore checkpoints with a higher number of updates or epochs.

    Raises:
        ConfigurationError: there are fewer checkpoints.
    """
    numbered = sorted((int(match[1]), path) for match, path in _matching(folder, pattern))
    ranked = [path for number, path in numbered if upper_bound is None or number <= upper_bound]
    kind = "named by update" if pattern is BY_UPDATE else "named by epoch"
    if upper_bound is not None:
        kind += f" up to {upper_bound}"
    return _take(folder, kind, ranked, count)


def best_checkpoints(folder: Path, count: int) -> List[Path]:
    """Return the ``count`` best checkpoints by the validation metric, worst first.

    The run's own configuration (``--maximize-best-checkpoint-metric``) says whether a high or a low
    value is better.

    Args:
        folder: ``--save-dir`` of a run with ``--keep-best-checkpoints``.
        count: number of checkpoints.

    Raises:
        ConfigurationError: there are fewer checkpoints, or they are ranked by several metrics.
    """
    found = _matching(folder, BEST)
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
    """Return whether the run that wrote a checkpoint considers the highest metric the best.

    Raises:
        CheckpointError: the checkpoint has no such setting.
    """
    state = load_checkpoint(path)
    try:
        if state.get("cfg") is not None:
            return bool(state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"])
        return bool(state["args"].maximize_best_checkpoint_metric)
    except (AttributeError, KeyError, TypeError):
        raise CheckpointError(
            f"{path} does not say whether its metric is maximised: name the files to average"
        ) from None


def _matching(folder: Path, pattern: re.Pattern[str]) -> List[Tuple[re.Match[str], Path]]:
    matched = ((pattern.fullmatch(path.name), path) for path in folder.iterdir())
    return [(match, path) for match, path in matched if match]


def _take(folder: Path, kind: str, ranked: Sequence[Path], count: int) -> List[Path]:
    if len(ranked) < count:
        raise ConfigurationError(
            f"{folder} has {len(ranked)} checkpoints {kind}, not {count}: ask for fewer, or keep "
            "more when training (--keep-interval-updates, --keep-last-epochs, "
            "--keep-best-checkpoints)"
        )
    return list(ranked[-count:])

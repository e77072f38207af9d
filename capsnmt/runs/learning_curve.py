"""Learning curves: training and validation loss over updates, read from ``train.log``.

``train.log`` holds fairseq-train's statistics as JSON lines. A training that was killed is resumed
from its last checkpoint and appends to the file, so the updates after that checkpoint occur twice,
and the last line before the kill may be incomplete.
"""

import json
import math
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Dict, Iterable, Optional

from capsnmt.cli import ConfigurationError
from capsnmt.lines import read_lines
from capsnmt.records import as_number

PEAK_MEMORY = "peak_memory_gib"  # our own statistic, once an epoch


@dataclass
class LearningCurve:
    """The curves of one training, as its log has them; each maps updates to values.

    Losses are per target token, in bits; the training loss (with label smoothing) is the mean since
    the previous entry.
    """

    train: Dict[int, float] = field(default_factory=dict)
    valid: Dict[int, float] = field(default_factory=dict)
    # wall-clock seconds, including validation, and target tokens since the previous entry
    seconds: Dict[int, float] = field(default_factory=dict)
    words: Dict[int, float] = field(default_factory=dict)
    epochs: Dict[int, int] = field(default_factory=dict)  # at their ends, and at that of the log
    peak_memory: Optional[float] = None  # GiB, of the first process, or of its GPU

    @property
    def updates(self) -> int:
        """The last update in the log."""
        return max([0, *self.train, *self.valid, *self.epochs])

    @property
    def epoch(self) -> int:
        """The last epoch, which may not be complete."""
        return max(self.epochs.values(), default=0)

    @property
    def training_seconds(self) -> Optional[float]:
        """Wall-clock seconds of the training; ``None`` if the log has no times.

        **D**: only updates that are part of the final model count, not those that a killed training
        made after its last checkpoint; those after the last entry count as the mean of the others.
        """
        seconds = sum(self.seconds.values())
        return seconds * self.updates / max(self.seconds) if self.seconds else None

    @property
    def tokens_per_second(self) -> Optional[float]:
        """Target tokens per second of training; ``None`` if the log has no times."""
        return sum(self.words.values()) / sum(self.seconds.values()) if self.seconds else None


def read_learning_curve(path: Path, updates: float = math.inf) -> LearningCurve:
    """Read the learning curve in a run's ``train.log``, of a finished training up to its end."""
    curve = parse_train_log(read_lines(path), updates)
    if not curve.train:
        raise ConfigurationError(
            f"{path} has no training loss: it is not a training log, or the training stopped "
            f"before its first entry; run the launcher's command again"
        )
    return curve


def parse_train_log(lines: Iterable[str], updates: float = math.inf) -> LearningCurve:
    """Parse the JSON lines of a training log, from its end: the last entry of an update counts.

    A training may end at a checkpoint that it had passed when it was killed: what follows its last
    of ``updates`` is of no model.

    >>> log = ['{"loss": "9.0", "num_updates": "10", "wall": "5"}',
    ...        '{"loss": "8.0", "num_updates": "20", "wall": "9"}',
    ...        '{"loss": "8.5", "num_updates": "20", "wall": "6"}',
    ...        '{"valid_loss": "8.1", "valid_num_updates": "20"}']
    >>> parse_train_log(log).train, parse_train_log(log).valid
    ({10: 9.0, 20: 8.5}, {20: 8.1})
    """
    curve, end = LearningCurve(), updates + 1  # from which on updates were made again, or for none
    kinds: Dict[str, Dict[int, Dict[str, float]]] = {"": {}, "valid_": {}, "train_": {}}
    for line in reversed([*lines]):
        stats = _numbers(line)
        if PEAK_MEMORY in stats:
            curve.peak_memory = max(stats[PEAK_MEMORY], curve.peak_memory or 0)
        kind = next((x for x in kinds if {f"{x}loss", f"{x}num_updates"} <= stats.keys()), None)
        if kind is None or (update := int(stats[f"{kind}num_updates"])) >= end:
            continue
        kinds[kind].setdefault(update, {key.removeprefix(kind): stats[key] for key in stats})
        end = {"": update, "train_": update + 1}.get(kind, end)
    logged, valid, ends = kinds.values()
    curve.valid.update((update, valid[update]["loss"]) for update in sorted(valid))
    curve.epochs.update((x, int(ends[x]["epoch"])) for x in sorted(ends) if "epoch" in ends[x])
    # A training shorter than --log-interval has the means of its epochs only.
    for update, stats in sorted((logged or ends).items()):
        # fairseq's wall would be more direct, but stays 0 in some resumed trainings; ups has only
        # two decimals.
        if "wpb" in stats and stats.get("wps"):
            made = update - max(curve.train, default=0)
            curve.seconds[update] = made * (stats["wpb"] / stats["wps"])
            curve.words[update] = made * stats["wpb"]
        curve.train[update] = stats["loss"]
    return curve


def _numbers(line: str) -> Dict[str, float]:
    """Return the finite numbers of a line of JSON; none of one that a kill has cut."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    items = entry.items() if isinstance(entry, dict) else ()
    numbers = {key: as_number(value) for key, value in items}
    return {k: x for k, x in numbers.items() if isinstance(x, float) and math.isfinite(x)}


def clock(seconds: float) -> str:
    """Format a duration.

    >>> clock(3725.4), clock(100000)
    ('1:02:05', '1 day, 3:46:40')
    """
    return str(timedelta(seconds=int(seconds)))

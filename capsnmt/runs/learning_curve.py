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

    def forget_from(self, update: float) -> None:
        """Drop the entries of this and later updates, which a resumed training repeats."""
        for points in (self.train, self.valid, self.seconds, self.words, self.epochs):
            for number in [number for number in points if number >= update]:
                del points[number]

    def add(self, stats: Dict[str, float]) -> None:
        """Add an entry of the training."""
        update = int(stats["num_updates"])
        # fairseq's wall would be more direct, but stays 0 in some resumed trainings; ups has only
        # two decimals.
        if "wpb" in stats and stats.get("wps"):
            made = update - max(self.train, default=0)
            self.seconds[update] = made * (stats["wpb"] / stats["wps"])
            self.words[update] = made * stats["wpb"]
        self.train[update] = stats["loss"]


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
    """Parse the JSON lines of a training log; the last entry of a repeated update counts.

    A training may end at a checkpoint that it had passed when it was killed: what follows its last
    of ``updates`` is of no model.

    >>> log = ['{"loss": "9.0", "num_updates": "10", "wall": "5"}',
    ...        '{"loss": "8.0", "num_updates": "20", "wall": "9"}',
    ...        '{"loss": "8.5", "num_updates": "20", "wall": "6"}',
    ...        '{"valid_loss": "8.1", "valid_num_updates": "20"}']
    >>> parse_train_log(log).train, parse_train_log(log).valid
    ({10: 9.0, 20: 8.5}, {20: 8.1})
    """
    curve = LearningCurve()
    ends: Dict[int, Dict[str, float]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # a kill cut it off
            continue
        if not isinstance(entry, dict):
            continue
        stats = {
            key: number
            for key, value in entry.items()
            if isinstance(number := as_number(value), float) and math.isfinite(number)
        }
        if {"loss", "num_updates"} <= stats.keys():
            curve.forget_from(int(stats["num_updates"]))
            curve.add(stats)
        elif {"valid_loss", "valid_num_updates"} <= stats.keys():
            curve.valid[int(stats["valid_num_updates"])] = stats["valid_loss"]
        elif {"train_loss", "train_num_updates"} <= stats.keys():
            update = int(stats["train_num_updates"])
            curve.forget_from(update + 1)
            ends = {other: ends[other] for other in ends if other < update}
            ends[update] = {key.removeprefix("train_"): stats[key] for key in stats}
            if "epoch" in stats:
                curve.epochs[update] = int(stats["epoch"])
        if PEAK_MEMORY in stats:
            curve.peak_memory = max(stats[PEAK_MEMORY], curve.peak_memory or 0)
    curve.forget_from(updates + 1)
    # A training shorter than --log-interval has the means of its epochs only.
    for update in ends if not curve.train else ():
        if update <= updates:
            curve.add(ends[update])
    return curve


def clock(seconds: float) -> str:
    """Format a duration.

    >>> clock(3725.4), clock(100000)
    ('1:02:05', '1 day, 3:46:40')
    """
    return str(timedelta(seconds=int(seconds)))

"""Learning curves: training and validation loss over updates, read from ``train.log`` and drawn.

``train.log`` holds fairseq-train's statistics as JSON lines. A training that was killed is resumed
from its last checkpoint and appends to the file: the updates after that checkpoint stand there
twice, and the last line before the kill may be half a line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

from capsnmt.errors import ConfigurationError

# Legible for readers with a colour vision deficiency (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Above this multiple of the lowest loss drawn a curve only shows how the model was initialised.
TALLEST = 2.5


@dataclass
class LearningCurve:
    """What a training log tells of one training.

    Attributes:
        train: updates -> training loss per target token, in bits (fairseq's ``loss``: with label
            smoothing, averaged since the entry before).
        valid: updates -> validation loss per target token, in bits.
        seconds: updates -> wall-clock seconds since the entry before, validation included.
        unreadable: lines that are no JSON: what a kill in the middle of a line leaves.
    """

    train: Dict[int, float] = field(default_factory=dict)
    valid: Dict[int, float] = field(default_factory=dict)
    seconds: Dict[int, float] = field(default_factory=dict)
    unreadable: int = 0

    @property
    def updates(self) -> int:
        """The last update the log tells of."""
        return max([0, *self.train, *self.valid])

    @property
    def training_seconds(self) -> Optional[float]:
        """Wall-clock seconds of the training; ``None`` where the log has no times.

        **D**: only updates that the final model has count, so what a killed training did after its
        last checkpoint does not.
        """
        return sum(self.seconds.values()) if self.seconds else None

    def forget_from(self, update: int) -> None:
        """Drop what the log told of this and later updates: they are made again."""
        for points in (self.train, self.valid, self.seconds):
            for number in [number for number in points if number >= update]:
                del points[number]


def parse_train_log(lines: Iterable[str], name: str = "train.log") -> LearningCurve:
    """Read the JSON lines of a training; of an update that was made twice the second counts.

    >>> log = ['{"loss": "9.0", "num_updates": "10", "wall": "5"}',
    ...        '{"loss": "8.0", "num_updates": "20", "wall": "9"}',
    ...        '{"loss": "8.5", "num_updates": "20", "wall": "6"}',
    ...        '{"valid_loss": "8.1", "valid_num_updates": "20"}']
    >>> parse_train_log(log).train, parse_train_log(log).valid
    ({10: 9.0, 20: 8.5}, {20: 8.1})

    Args:
        lines: the log.
        name: what to call it in an error.

    Raises:
        ConfigurationError: no line tells a training loss.
    """
    curve = LearningCurve()
    for line in lines:
        stats = _statistics(line)
        curve.unreadable += stats is None and bool(line.strip())
        loss, update = _number(stats, "loss"), _number(stats, "num_updates")
        valid_loss, valid_update = _number(stats, "valid_loss"), _number(stats, "valid_num_updates")
        if loss is not None and update is not None:
            curve.forget_from(int(update))
            seconds = _seconds_per_update(stats)
            if seconds is not None:
                made = update - max(curve.train, default=0)
                curve.seconds[int(update)] = made * seconds
            curve.train[int(update)] = loss
        elif valid_loss is not None and valid_update is not None:
            curve.valid[int(valid_update)] = valid_loss
    if not curve.train:
        raise ConfigurationError(
            f"{name}: holds no training loss: not the log of a training, or of one that was "
            f"stopped before its first entry; train on with the launcher"
        )
    return curve


def read_learning_curve(path: Path) -> LearningCurve:
    """The learning curve in a run's ``train.log``.

    Raises:
        ConfigurationError: the file is missing, cannot be read or holds no training loss.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return parse_train_log(file, str(path))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: there is no such file: give the folder of a run of the launcher"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None


def draw(curves: Mapping[str, LearningCurve], path: Path, title: str = "") -> None:
    """Draw the curves of all systems into one PNG: solid validation, dotted training loss.

    The loss axis ends at ``TALLEST`` times the lowest loss, so that the part where systems differ
    fills the picture and not the first updates, where they do not.

    Args:
        curves: name of each system -> its curve.
        path: the PNG; written in place.
        title: above the picture.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    try:
        # Not pyplot: it keeps global state and may look for a screen.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import StrMethodFormatter
    except ImportError:
        raise ConfigurationError(
            "learning curves need matplotlib: pip install 'capsnmt[demo]'"
        ) from None
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        for style, width, label, points in (
            (":", 1.4, f"{name}, training", curve.train),
            ("-", 2.0, f"{name}, validation", curve.valid),
        ):
            if points:
                updates = sorted(points)
                losses = [points[update] for update in updates]
                axes.plot(updates, losses, style, color=colour, linewidth=width, label=label)
    losses = _losses(curves.values())
    low, high = min(losses), max(losses)
    top = min(high, TALLEST * low)
    margin = 0.05 * (top - low) or 0.1
    axes.set_ylim(low - margin, top + margin)
    axes.set_xlim(left=0)
    axes.set_xlabel("updates")
    axes.set_ylabel("loss, bits per target subword (label-smoothed)")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    if title:
        axes.set_title(title, loc="left")
    # Without the version of matplotlib in it, the same runs give the same bytes.
    figure.savefig(path, format="png", metadata={"Software": None})


def _losses(curves: Iterable[LearningCurve]) -> List[float]:
    return [loss for curve in curves for points in (curve.train, curve.valid)
            for loss in points.values()]  # fmt: skip


def _statistics(line: str) -> Optional[Dict[str, Any]]:
    try:
        stats = json.loads(line)
    except ValueError:
        return None
    return stats if isinstance(stats, dict) else None


def _seconds_per_update(stats: Optional[Mapping[str, Any]]) -> Optional[float]:
    """Words per update over words per second, of one entry.

    fairseq's ``wall`` tells the same more directly, but stays 0 in some resumed trainings, and
    ``ups`` has two decimals only.
    """
    words, speed = _number(stats, "wpb"), _number(stats, "wps")
    return words / speed if words is not None and speed else None


def _number(stats: Optional[Mapping[str, Any]], key: str) -> Optional[float]:
    """The finite number that fairseq printed as text; ``None`` for anything else."""
    try:
        number = float((stats or {})[key])
    except (KeyError, TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None

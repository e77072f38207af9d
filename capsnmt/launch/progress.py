"""The progress of a training: short lines for the user, made from fairseq's JSON statistics."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, TextIO

from capsnmt.runs.learning_curve import clock

BEGUN = "Start iterating over samples"
STOPPED = re.compile(r"\| capsnmt\.experiment\.preemption \| stopped by ")
LINE = re.compile(r"^\S+ \S+ \| INFO \| (?P<tag>\S+) \| (?P<stats>\{.*\})\s*$")


class TrainingProgress:
    """Handle fairseq-train's output line by line.

    Statistics go to ``log`` as JSON lines (fairseq's ``--log-file`` would repeat each of them every
    epoch), all output goes to ``console``, and ``show`` gets short lines: updates, loss, perplexity
    or accuracy, speed, remaining time.

    Attributes:
        tail: the last lines that are not statistics.
        begun: whether the training has started to make updates.
        stopped: whether it ended because it was asked to.

    Args:
        total: the updates of the complete training; ``None`` if epochs or patience end it.
        log, console: open files.
        show: called with each short line.
    """

    def __init__(
        self,
        total: Optional[int],
        log: TextIO,
        console: TextIO,
        show: Callable[[str], None] = print,
    ) -> None:
        self.total, self.log, self.console, self.show = total, log, console, show
        self.tail: Deque[str] = deque(maxlen=20)
        self.begun = self.stopped = False
        self.first: Optional[int] = None
        self.started = time.monotonic()

    def __call__(self, line: str) -> None:
        """Handle one line of output."""
        self.console.write(line)
        self.console.flush()
        stats = parse(line)
        if stats is None:
            self.begun = self.begun or BEGUN in line
            self.stopped = self.stopped or STOPPED.search(line) is not None
            self.tail.append(line.rstrip("\n"))
            return
        self.log.write(json.dumps(stats) + "\n")
        self.log.flush()
        if "valid_loss" in stats:
            self.show(
                f"  epoch {stats.get('epoch')}  valid loss {stats['valid_loss']}"
                f"{_quality(stats, 'valid_')}"
            )
        elif "loss" in stats and "num_updates" in stats:
            self.show(self._update(stats))

    def _update(self, stats: Dict[str, Any]) -> str:
        done = int(stats["num_updates"])
        if self.first is None:
            self.first, self.started = done, time.monotonic()
        total = "" if self.total is None else f"/{self.total:,}"
        line = f"  update {done:,}{total}  loss {stats['loss']}{_quality(stats)}"
        if "wps" in stats:
            line += f"  {stats['wps']} words/s"
        if self.total is None or done == self.first:
            return line
        remaining = (self.total - done) * (time.monotonic() - self.started) / (done - self.first)
        return f"{line}  {clock(remaining)} left"


def _quality(stats: Dict[str, Any], prefix: str = "") -> str:
    """Return the perplexity of a translation model, or the accuracy of a classifier."""
    for key, name in (("ppl", "ppl"), ("accuracy", "accuracy")):
        if prefix + key in stats:
            return f"  {name} {stats[prefix + key]}"
    return ""


def parse(line: str) -> Optional[Dict[str, Any]]:
    """Return the statistics in a line of fairseq's log; ``None`` if it holds none.

    >>> parse('2026-01-01 00:00:00 | INFO | train_inner | {"epoch": 1, "loss": "9.1"}')
    {'epoch': 1, 'loss': '9.1'}
    >>> parse('2026-01-01 00:00:00 | INFO | fairseq.trainer | begin training epoch 1')
    """
    match = LINE.match(line)
    if match is None:
        return None
    try:
        stats = json.loads(match["stats"])
    except ValueError:  # fairseq also prints its configuration in braces
        return None
    return stats if isinstance(stats, dict) else None


def say(line: str) -> None:
    """Print a line at once, also through a pipe."""
    print(line, flush=True)

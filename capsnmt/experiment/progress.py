"""What a user sees of a training: short lines made from fairseq's JSON, which is kept."""

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
    """Takes fairseq-train's output line by line.

    Statistics go to ``log`` as JSON lines (fairseq's ``--log-file`` would repeat each of them once
    more every epoch), everything goes to ``console``, and ``show`` gets a line to read: updates of
    the total, loss, perplexity, speed, remaining time. ``begun`` tells that the training is at its
    updates, ``stopped`` that it ended because it was asked to.
    """

    def __init__(
        self, total: int, log: TextIO, console: TextIO, show: Callable[[str], None] = print
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
                f"  epoch {stats.get('epoch')}  valid loss {stats['valid_loss']}  "
                f"ppl {stats.get('valid_ppl', '-')}"
            )
        elif "loss" in stats and "num_updates" in stats:
            self.show(self._update(stats))

    def _update(self, stats: Dict[str, Any]) -> str:
        done = int(stats["num_updates"])
        if self.first is None:
            self.first, self.started = done, time.monotonic()
        line = (
            f"  update {done:,}/{self.total:,}  loss {stats['loss']}  ppl {stats.get('ppl', '-')}  "
            f"{stats.get('wps', '-')} words/s"
        )
        if done == self.first:
            return line
        remaining = (self.total - done) * (time.monotonic() - self.started) / (done - self.first)
        return f"{line}  {clock(remaining)} left"


def parse(line: str) -> Optional[Dict[str, Any]]:
    """The statistics in a line of fairseq's log; ``None`` when it holds none.

    >>> parse('2026-01-01 00:00:00 | INFO | train_inner | {"epoch": 1, "loss": "9.1"}')
    {'epoch': 1, 'loss': '9.1'}
    >>> parse('2026-01-01 00:00:00 | INFO | fairseq.trainer | begin training epoch 1')
    """
    match = LINE.match(line)
    if match is None:
        return None
    try:
        stats = json.loads(match["stats"])
    except ValueError:  # fairseq prints its own configuration in braces, too
        return None
    return stats if isinstance(stats, dict) else None

"""The progress of a training: short lines for the user, made from fairseq's JSON statistics."""

import json
import re
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, Optional, TextIO, Tuple

from capsnmt.files import naming
from capsnmt.runs.learning_curve import clock

# Our own statistics: what has asked the training to stop; what it has learnt when it is over.
STOPPED_BY, PARAMETERS = "stopped_by", "parameters"


# the last line of a traceback, but for torchrun's own
ERROR = re.compile(r"(?:\[rank\d+\]: )?((?!.*ChildFailedError)[\w.]+Error: \S.*)")
WARNING = re.compile(r" \| WARNING \| capsnmt\S* \| (.*)")  # our own


class TrainingProgress:
    """Handle the output of a training line by line.

    All output goes to ``console``. The user is shown short lines: updates, loss, perplexity or
    accuracy, speed, remaining time; and our warnings, as of an initial model of other settings.
    """

    def __init__(self, total: Optional[int], console: TextIO) -> None:
        self.total = total  # updates of the whole training; None if epochs or patience end it
        self.console = console
        self.tail: Deque[str] = deque(maxlen=20)  # lines that are not statistics
        self.stopped = False  # because it was asked to
        # of a training that is over; None if it says nothing
        self.updates: Optional[int] = None
        self.parameters: Optional[int] = None
        self.first: Optional[Tuple[int, float]] = None  # update that was logged, and its time

    def __call__(self, line: str) -> None:
        """Handle one line of output."""
        self.console.write(line)
        self.console.flush()
        stats = _statistics(line)
        if stats is None:
            warning = WARNING.search(line)  # which each process may give
            if warning and not any(known.endswith(warning[1]) for known in self.tail):
                print_line(f"  warning: {warning[1]}")
            self.tail.append(line.rstrip("\n"))
            return
        self.stopped = self.stopped or STOPPED_BY in stats
        if PARAMETERS in stats:
            self.parameters, self.updates = int(stats[PARAMETERS]), int(stats["updates"])
        if "valid_loss" in stats:
            epoch, loss = stats.get("epoch"), stats["valid_loss"]
            print_line(f"  epoch {epoch}  valid loss {loss}{_quality(stats, 'valid_')}")
        elif "loss" in stats and "num_updates" in stats:
            print_line(self._update(stats))

    @property
    def cause(self) -> str:
        """The error that ended the training, as far as its output says."""
        lines = (ERROR.fullmatch(line) for line in reversed(self.tail))
        return next((found[1] for found in lines if found), "")

    def _update(self, stats: Dict[str, Any]) -> str:
        done = int(stats["num_updates"])
        first, started = self.first = self.first or (done, time.monotonic())
        total = "" if self.total is None else f"/{self.total:,}"
        line = f"  update {done:,}{total}  loss {stats['loss']}{_quality(stats)}"
        if "wps" in stats:
            line += f"  {stats['wps']} words/s"
        if self.total is None or done == first:
            return line
        remaining = (self.total - done) * (time.monotonic() - started) / (done - first)
        return f"{line}  {clock(remaining)} left"


def _quality(stats: Dict[str, Any], prefix: str = "") -> str:
    """Return the perplexity of a translation model, or the accuracy of a classifier."""
    found = [name for name in ("ppl", "accuracy") if prefix + name in stats]
    return f"  {found[0]} {stats[prefix + found[0]]}" if found else ""


def _statistics(line: str) -> Optional[Dict[str, Any]]:
    """Return the statistics in a line of fairseq's log: ``TIME | INFO | valid | {"epoch": 1}``."""
    try:
        stats = json.loads(line.split(" | ", 3)[3])
    except (IndexError, ValueError):  # fairseq also prints its configuration in braces
        return None
    return stats if isinstance(stats, dict) else None


def print_line(line: str) -> None:
    """Print a line at once, also through a pipe."""
    with naming(Path("standard output")):
        print(line, flush=True)

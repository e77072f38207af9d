"""Training that stops on request: it finishes its update, saves and ends.

fairseq saves at fixed updates only, and a signal kills it. Three functions of its training loop are
wrapped: the one for an epoch starts to listen for requests; the one after each update saves and
stops; the one for ``--patience`` keeps its count in the checkpoint, which fairseq does not. A save
on request does not validate: the result of a training must not depend on when it was interrupted.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional, Tuple

import fairseq_cli.train as fairseq_train
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

import capsnmt.plugin  # noqa: F401  spawned processes import this module first
from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.checkpoints.resume import LAST, STOP_FILE
from capsnmt.launch.memory import peak_memory
from capsnmt.process import ASKING
from capsnmt.runs.learning_curve import PEAK_MEMORY

logger = logging.getLogger(__name__)

# The cause of a request is a number, so that processes can compare it: that of a signal, this one,
# or 0 for no request.
BY_FILE = int(signal.NSIG)
# Where the state of the task has the best validation result and the validations since then.
PATIENCE = "patience"


class Request:
    """Whether this process has been asked to stop."""

    def __init__(self) -> None:
        self.signum: Optional[int] = None

    def listen(self) -> None:
        """Treat signals as requests from now on."""
        for signum in ASKING:
            signal.signal(signum, self._note)
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)

    def _note(self, signum: int, _: Optional[FrameType]) -> None:
        self.signum = signum

    def cause(self, file: Path) -> int:
        """Return the cause of the request: the number of a signal, ``BY_FILE``, or 0 for none.

        A blocked signal stays pending, unless a thread that does not block it ran the handler.
        """
        signum = self.signum or next(iter(signal.sigpending() & ASKING), None)
        return signum or (BY_FILE if file.exists() else 0)


@contextmanager
def shielded_children() -> Iterator[None]:
    """Start processes with stop signals blocked, whether or not this thread blocks them.

    SLURM sends a signal to every process of a job. SIGTERM would end the workers that load data,
    and the training with them. ve-fairseq starts those of the validation before the first update
    and keeps them.
    """
    begin = BaseProcess.start

    def start(process: BaseProcess) -> None:
        resource_tracker.ensure_running()  # which would unblock SIGTERM if it ran below
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
        try:
            begin(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    BaseProcess.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        BaseProcess.start = begin  # type: ignore[method-assign]


def outlive() -> None:
    """Ignore stop signals here; the child processes handle them.

    The signals are blocked, which child processes inherit. The handler does nothing; it
    keeps a signal from ending the process through a thread that a library started earlier.
    """
    for signum in ASKING:
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)


def agree(cause: int, trainer: Any) -> int:
    """Return the cause of a request to any process: all must stop after the same update."""
    if trainer.data_parallel_world_size == 1:
        return cause
    shared = torch.tensor(cause, device=trainer.device)
    distributed_utils.all_reduce(shared, group=trainer.data_parallel_process_group, op="max")
    return int(shared.item())


class PatienceCount:
    """fairseq's function for ``--patience``, with its count in the state of the task.

    fairseq keeps the count in attributes of its function, which no checkpoint saves: an interrupted
    training would continue for longer than an uninterrupted one.

    Args:
        stops_early: fairseq's function.
        task: the task; checkpoints hold its state.
        resumed: the checkpoint that the training resumed from, if any; fairseq saves the state of
            the task, but does not restore it.
    """

    def __init__(
        self, stops_early: Callable[[Any, Any], bool], task: Any, resumed: Optional[Path]
    ) -> None:
        self.stops_early, self.task = stops_early, task
        saved = None if resumed is None else load_checkpoint(resumed).get("task_state") or {}
        if saved and PATIENCE in saved:
            self.best, self.num_runs = saved[PATIENCE]
            self.keep()

    def __call__(self, cfg: Any, valid_loss: Any) -> bool:
        """Return whether to stop, and keep the count."""
        stop = self.stops_early(cfg, valid_loss)
        if hasattr(self, "best"):
            self.keep()
        return stop

    def keep(self) -> None:
        """Put the count into the state of the task."""
        state = [float(self.best), int(self.num_runs)]
        self.task.state.merge_state_dict({PATIENCE: state})

    def is_exhausted(self, patience: int) -> bool:
        """Return whether a training with this count has ended."""
        return 0 < patience <= getattr(self, "num_runs", 0)


def main(cfg: Any) -> None:
    """Train in one process and stop on request; before the first update a signal kills.

    Args:
        cfg: fairseq's configuration, as ``fairseq_cli.train.main`` takes it.
    """
    request = Request()
    epoch, after_update = fairseq_train.train, fairseq_train.validate_and_save
    stops_early = fairseq_train.should_stop_early
    count: Any = None  # of validations without improvement, as fairseq keeps it

    def train(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Tuple[List[Any], bool]:
        nonlocal count
        if count is None:
            last = Path(cfg.checkpoint.save_dir) / LAST
            resumed = cfg.checkpoint.patience > 0 and trainer.get_num_updates() > 0
            count = PatienceCount(stops_early, task, last if resumed else None)
            # fairseq's function finds its own count by this name.
            fairseq_train.should_stop_early = count
        if count.is_exhausted(cfg.checkpoint.patience):
            return [None], True
        request.listen()
        ended = epoch(cfg, trainer, task, epoch_itr)
        if trainer.is_data_parallel_master:
            logger.info(json.dumps({PEAK_MEMORY: round(peak_memory(trainer.device), 3)}))
        return ended

    def validate_and_save(
        cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: List[str], end_of_epoch: bool
    ) -> Tuple[List[Any], bool]:
        losses, ended = after_update(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
        file = Path(cfg.checkpoint.save_dir) / STOP_FILE
        cause = 0 if ended else agree(request.cause(file), trainer)
        if not cause:
            return losses, ended
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        if trainer.is_data_parallel_master:
            file.unlink(missing_ok=True)
        asker = file if cause == BY_FILE else signal.Signals(cause).name
        logger.info(f"stopped by {asker} at {trainer.get_num_updates()} updates")
        return losses, True

    for signum in ASKING:
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    fairseq_train.train, fairseq_train.validate_and_save = train, validate_and_save
    try:
        with shielded_children():
            fairseq_train.main(cfg)
    finally:
        fairseq_train.train, fairseq_train.validate_and_save = epoch, after_update
        fairseq_train.should_stop_early = stops_early
        # On exit Python sends the workers that load data SIGTERM, which they block, and waits.
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()

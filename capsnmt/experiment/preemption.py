"""A training that can be asked to stop: it saves after the update it is at, and ends.

fairseq saves at fixed updates only, and a signal just kills it. Two functions of its training loop
are wrapped: the one before an epoch starts to listen, the one after each update saves and stops.
Such a save validates nothing: what a training becomes must not depend on when it was interrupted.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
from pathlib import Path
from types import FrameType
from typing import Any, List, Optional, Tuple

import fairseq_cli.train as fairseq_train
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils

import capsnmt.plugin  # noqa: F401  spawned processes import this module first
from capsnmt.checkpoints.recovery import STOP_FILE

logger = logging.getLogger(__name__)

ASKING = frozenset({signal.SIGTERM, signal.SIGUSR1})
# Who asked, as a number that processes can compare: a signal's own, or this, or 0 for nobody.
BY_FILE = 1


class Request:
    """Whether this process has been asked to stop."""

    def __init__(self) -> None:
        self.signum: Optional[int] = None

    def listen(self) -> None:
        """From now on a signal asks instead of killing.

        SLURM sends it to every process of a job. The workers that load data are forked from this
        process and end at SIGTERM, which would end the training, too; they inherit what is blocked.
        """
        for signum in ASKING:
            signal.signal(signum, self._note)
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)

    def _note(self, signum: int, _: Optional[FrameType]) -> None:
        self.signum = signum

    def cause(self, file: Path) -> int:
        """Who asked: the number of a signal, ``BY_FILE``, or 0 for nobody.

        A blocked signal stays pending, unless a thread that blocks nothing took it to the handler.
        """
        signum = self.signum or next(iter(signal.sigpending() & ASKING), None)
        return signum or (BY_FILE if file.exists() else 0)


def outlive() -> None:
    """Let those decide about a signal whom this process starts, and now waits for.

    A handler that does nothing keeps the threads alive that libraries started before the signals
    were blocked; what is blocked stays so in the processes that are started.
    """
    for signum in ASKING:
        signal.signal(signum, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)


def agree(cause: int, trainer: Any) -> int:
    """Who asked any process of the training: all must stop after the same update."""
    if trainer.data_parallel_world_size == 1:
        return cause
    shared = torch.tensor(cause, device=trainer.device)
    distributed_utils.all_reduce(shared, group=trainer.data_parallel_process_group, op="max")
    return int(shared.item())


def main(cfg: Any) -> None:
    """fairseq's training of one process, which stops when asked; before its first update it dies.

    Args:
        cfg: fairseq's configuration, as ``fairseq_cli.train.main`` takes it.
    """
    request = Request()
    epoch, after_update = fairseq_train.train, fairseq_train.validate_and_save

    def train(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Tuple[List[Any], bool]:
        request.listen()
        return epoch(cfg, trainer, task, epoch_itr)

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
        fairseq_train.main(cfg)
    finally:
        fairseq_train.train, fairseq_train.validate_and_save = epoch, after_update
        # Python waits at its end for the workers that load data, after a SIGTERM that they block.
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()

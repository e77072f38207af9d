"""``python -m capsnmt.launch.train``: fairseq-train that stops on request, on any device.

The flags are those of fairseq-train, which saves at fixed updates only, and which a signal kills.
Here a file named ``stop`` in the folder of the checkpoints, SIGTERM and SIGUSR1 are requests: the
training finishes its update, saves and ends with 0. It does not validate at this save, so that the
result does not depend on when it was interrupted. ``--log-file`` gets each of fairseq's statistics
once, as a line of JSON; fairseq itself would repeat them with every epoch.
"""

import errno
import functools
import json
import logging
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import capsnmt.plugin  # noqa: F401  # isort: skip  (first: fairseq opens the root logger)

import fairseq_cli.train as fairseq_train
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from capsnmt.checkpoints.load import count_learned, load_checkpoint
from capsnmt.checkpoints.resume import LAST, STOP_FILE
from capsnmt.host import patch
from capsnmt.launch.progress import PARAMETERS, STOPPED_BY
from capsnmt.runs.learning_curve import PEAK_MEMORY

logger = logging.getLogger("capsnmt.launch.train")

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
BY_FILE = int(signal.NSIG)  # a cause is a number, which processes can compare
PORTS = range(10000, 60000)
PATIENCE = "patience"  # the best validation result and the validations since then


def shared_cause(cause: int, trainer: Any) -> int:
    """Return the cause to stop of any process, or 0: all must stop after the same update."""
    if trainer.data_parallel_world_size == 1:
        return cause
    shared = torch.tensor(cause, device=trainer.device)
    distributed_utils.all_reduce(shared, group=trainer.data_parallel_process_group, op="max")
    return int(shared.item())


def restore_patience(settings: Any) -> Dict[str, Any]:
    """Return the count of ``--patience``, which is kept in the checkpoints.

    fairseq keeps it in attributes of its function: an interrupted training would last longer than
    an uninterrupted one, and an average of its last epochs be another.
    """
    count, last = vars(fairseq_train.should_stop_early), Path(settings.save_dir) / LAST
    count.clear()
    if settings.patience > 0 and last.exists():
        state = load_checkpoint(last).get("task_state") or {}
        count.update(state.get(PATIENCE, {}))
    return count


def save(original: Any, state: Any, filename: str, *more: Any, **options: Any) -> None:
    """Save a checkpoint as fairseq does, with errors that name the file.

    That of a full disk does not by itself, and torch raises what it makes of it.
    """
    try:
        original(state, filename, *more, **options)
    except (OSError, RuntimeError) as error:
        fault = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise OSError(getattr(error, "errno", None) or errno.EIO, fault, filename) from None


def ignore_stops(_: int = 0) -> None:
    """Ignore the signals in this process: SLURM sends them to every process of a job.

    In a process that loads data they would end the training: torch lets SIGTERM kill it.
    """
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def peak_memory(device: torch.device) -> float:
    """Return the peak in GiB: of the tensors on a GPU, otherwise of this whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s*(\d+)", status.read_text("utf-8") if status.is_file() else "")
    if peak is not None:
        return int(peak[1]) / 2**20
    # It could be the peak of the parent when it started this process. Only macOS counts in bytes.
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (2**30 if sys.platform == "darwin" else 2**20)


def train(cfg: Any) -> None:
    """Train in one process with fairseq's configuration, and stop on request."""
    request, received = Path(cfg.checkpoint.save_dir) / STOP_FILE, [0]
    for signum in SIGNALS:
        signal.signal(signum, lambda number, _: received.append(number))
    log_file, cfg.common.log_file = cfg.common.log_file, None
    if log_file is not None:
        statistics = logging.FileHandler(log_file, encoding="utf-8", delay=True)
        statistics.addFilter(lambda record: record.getMessage().startswith('{"'))
        logging.getLogger().addHandler(statistics)
    after_update = fairseq_train.validate_and_save
    count = restore_patience(cfg.checkpoint)
    if 0 < cfg.checkpoint.patience <= count.get("num_runs", 0):
        return
    # The workers of a killed torchrun would go on without the lock, and overwrite checkpoints.
    parent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None

    trained: List[Any] = []  # by the first process, unless it is to stop
    unsaved: List[Any] = []  # the end of an epoch that --save-interval leaves out

    def validate_and_save(
        cfg: Any, trainer: Any, task: Any, epoch_itr: Any, subsets: List[str], end_of_epoch: bool
    ) -> Tuple[List[Any], bool]:
        if parent not in (None, os.getppid()):
            raise SystemExit("torchrun has been killed")
        if cfg.checkpoint.patience > 0:
            task.state.merge_state_dict({PATIENCE: count})  # as it is when the task is saved
        losses, ended = after_update(cfg, trainer, task, epoch_itr, subsets, end_of_epoch)
        asked = received[-1] or (BY_FILE if request.exists() else 0)
        cause = 0 if ended else shared_cause(asked, trainer)
        if cause:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
        left = end_of_epoch and epoch_itr.epoch % cfg.checkpoint.save_interval
        last = (cfg.checkpoint, trainer, epoch_itr, losses[0])
        unsaved[:] = [last] if left and not (ended or cause) else []
        if not trainer.is_data_parallel_master:
            return losses, ended or bool(cause)
        trained[:] = [] if cause else [trainer]
        if cause:
            asker = str(request) if cause == BY_FILE else signal.Signals(cause).name
            logger.info(json.dumps({STOPPED_BY: asker, "updates": trainer.get_num_updates()}))
        if ended or cause:
            request.unlink(missing_ok=True)
        if ended or cause or end_of_epoch:
            logger.info(json.dumps({PEAK_MEMORY: round(peak_memory(trainer.device), 3)}))
        return losses, ended or bool(cause)

    @patch(fairseq_train, "train")
    def train_epoch(original: Any, cfg: Any, trainer: Any, *more: Any) -> Tuple[List[Any], bool]:
        # fairseq asks after an update: one that resumes at its end would make one too many
        if 0 < cfg.optimization.max_update <= trainer.get_num_updates():
            return [None], True
        return original(cfg, trainer, *more)

    fairseq_train.validate_and_save = validate_and_save
    patch(checkpoint_utils, "torch_persistent_save")(save)
    # fairseq would forget the peak after every update; its gb_free is the least so far instead
    torch.cuda.reset_peak_memory_stats = lambda: None
    torch.utils.data.DataLoader = functools.partial(
        torch.utils.data.DataLoader, worker_init_fn=ignore_stops
    )
    try:
        fairseq_train.main(cfg)
        for last in unsaved:  # it was the last one, which a launch evaluates
            checkpoint_utils.save_checkpoint(*last)
        for trainer in trained:  # the launcher need not load the checkpoint for these
            ended = {PARAMETERS: count_learned(trainer.get_model().state_dict())}
            logger.info(json.dumps({**ended, "updates": trainer.get_num_updates()}))
    finally:
        # On exit Python sends the workers that load data SIGTERM, which they ignore, and waits.
        for worker in multiprocessing.active_children():
            worker.kill()


def main(cfg: Any) -> None:
    """Train, and dissolve the group of the processes when all of them have.

    fairseq leaves the group to the exit of the process. A thread of gloo that then still holds a
    tensor needs the interpreter, which has gone, and aborts (torch's pull request 179291).
    """
    train(cfg)
    if torch.distributed.is_initialized():
        torch.distributed.barrier(distributed_utils.get_global_group())
        torch.distributed.destroy_process_group()
        vars(distributed_utils.get_global_group).clear()  # what keeps fairseq's own group


def port_of_step(variables: Mapping[str, str]) -> int:
    """Return the port at which the processes of a step of SLURM meet.

    **D**: every node knows the numbers of the job and of the step. Several runs may be steps of one
    job, and several jobs may share a machine.
    """
    place = f"{variables['SLURM_JOB_ID']}.{variables.get('SLURM_STEP_ID', '0')}"
    return PORTS[zlib.crc32(place.encode()) % len(PORTS)]


def find_place(distributed: Any, cpu: bool) -> None:
    """Tell fairseq the place of this process, which it cannot infer on a CPU.

    torchrun has started the processes of one node. On several nodes srun has started one for each
    process on a CPU, or one a node, where fairseq starts a process for each GPU.
    """
    if "SLURM_STEP_NODELIST" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ:
        # a container's hook takes the tasks of a step for its processes, also where each has GPUs
        os.environ.pop("RANK", None)
        os.environ.pop("WORLD_SIZE", None)
    method, rank = "env://", os.environ.get("RANK")
    if rank is None and "SLURM_STEP_NODELIST" in os.environ:
        distributed.distributed_port = port_of_step(os.environ)
        show = ["scontrol", "show", "hostnames", os.environ["SLURM_STEP_NODELIST"]]
        hosts = subprocess.run(show, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
        method = f"tcp://{hosts[0]}:{distributed.distributed_port}"
        rank = os.environ["SLURM_PROCID"]
        if not cpu:
            ignore_stops()  # the processes that fairseq starts handle them
    if cpu and rank is not None:
        distributed.distributed_init_method, distributed.distributed_rank = method, int(rank)
        distributed.distributed_no_spawn = True


def cli_main() -> None:
    """Train with the flags of fairseq-train."""
    root = logging.getLogger()
    # whatever LOGLEVEL says: it is read; fairseq lets the first of several processes alone log
    root.setLevel(min(root.level, logging.INFO))
    args = options.parse_args_and_arch(options.get_training_parser())
    cfg = convert_namespace_to_omegaconf(args)
    distributed = cfg.distributed_training
    if distributed.distributed_world_size > 1 and distributed.distributed_init_method is None:
        find_place(distributed, cfg.common.cpu)
    distributed_utils.call_main(cfg, main)


if __name__ == "__main__":
    cli_main()

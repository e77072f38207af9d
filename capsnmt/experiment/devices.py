"""What an experiment runs on, and the batch that keeps the update the same whatever that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

from capsnmt.errors import ConfigurationError


@dataclass(frozen=True)
class Device:
    """CPU (``gpus == 0``) or a number of GPUs of this machine; ``threads`` of each process."""

    gpus: int = 0
    threads: Optional[int] = None

    @property
    def workers(self) -> int:
        """The processes that share one update."""
        return max(1, self.gpus)

    def __str__(self) -> str:
        return {0: "CPU", 1: "1 GPU"}.get(self.gpus, f"{self.gpus} GPUs")


@dataclass(frozen=True)
class Batch:
    """``max_tokens`` per device and forward pass, accumulated over ``update_freq`` passes."""

    max_tokens: int
    update_freq: int
    workers: int

    @property
    def tokens_per_update(self) -> int:
        """The most tokens one update sees, over all devices."""
        return self.max_tokens * self.update_freq * self.workers

    def __str__(self) -> str:
        return (
            f"{self.tokens_per_update:,} tokens per update = {self.max_tokens:,} tokens x "
            f"{self.workers} device(s) x {self.update_freq} accumulated"
        )


def choose_device(
    cpu: bool, gpus: Optional[int], threads: Optional[int], check: bool = True
) -> Device:
    """The device of the flags; without any, one GPU if there is one, else the CPU.

    Args:
        cpu: ``--cpu`` was given.
        gpus: the value of ``--gpus``.
        threads: the value of ``--threads``.
        check: whether the GPUs must be there; a dry run plans for another machine.

    Raises:
        ConfigurationError: more GPUs are asked for than there are.
    """
    import torch

    if cpu:
        return Device(0, threads)
    found = torch.cuda.device_count()
    if gpus is None:
        return Device(min(1, found), threads)
    if check and gpus > found:
        fix = f"give --gpus 1..{found} or --cpu" if found else "give --cpu"
        raise ConfigurationError(
            f"--gpus {gpus}: this machine has {found or 'none'} that torch can use: {fix}"
        )
    return Device(gpus, threads)


def split_batch(tokens_per_update: int, max_tokens: int, workers: int) -> Batch:
    """The same update on any number of devices: fewest passes that fit, of equal size.

    **D**: where the number of devices does not divide the batch, the update is smaller by less
    than one token a device and pass, never larger.

    >>> split_batch(4096, 4096, 1).update_freq, split_batch(4096, 4096, 2).max_tokens
    (1, 2048)
    >>> split_batch(25000, 4096, 2).update_freq
    4
    """
    passes = -(-tokens_per_update // (workers * max_tokens))
    return Batch(tokens_per_update // (workers * passes), passes, workers)


def train_prefix(device: Device) -> List[str]:
    """The Python arguments that start fairseq-train on the device."""
    if device.gpus > 1:
        distributed = ["-m", "torch.distributed.run", "--standalone"]
        return [*distributed, f"--nproc_per_node={device.gpus}", "-m", "fairseq_cli.train"]
    return ["-m", "fairseq_cli.train"]

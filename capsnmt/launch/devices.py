"""Devices, and the split of a batch that makes the update the same on all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List

import torch

from capsnmt.cli import ConfigurationError
from capsnmt.launch.options import Options
from capsnmt.runs.records import Device


@dataclass(frozen=True)
class Batch:
    """The update of a configuration, split over devices and passes."""

    per_pass: int  # the most tokens or sentences of one device in one forward pass
    update_freq: int  # passes whose gradients are accumulated
    workers: int  # devices that share the update
    wanted: int  # tokens or sentences per update that the configuration asks for
    unit: str = "tokens"  # or sentences

    @property
    def per_update(self) -> int:
        """The most tokens or sentences that one update sees, over all devices."""
        return self.per_pass * self.update_freq * self.workers

    def argv(self) -> List[str]:
        """The flags of fairseq-train."""
        size = {"tokens": "--max-tokens", "sentences": "--batch-size"}[self.unit]
        return [size, str(self.per_pass), "--update-freq", str(self.update_freq)]

    def __str__(self) -> str:
        rounded = self.wanted - self.per_update
        text = (
            f"{self.per_update:,} {self.unit} per update = {self.per_pass:,} {self.unit} x "
            f"{self.workers} device(s) x {self.update_freq} accumulated"
        )
        if not rounded:
            return text
        return f"{text}, {rounded:,} fewer than the configured {self.wanted:,}"


def choose_device(options: Options) -> Device:
    """Return the device that the flags ask for; by default one GPU if there is one, else the CPU.

    A job gets one GPU by default. It, or a dry run, may be for another machine.
    """
    found, gpus = torch.cuda.device_count(), options.gpus
    if options.cpu:
        gpus = 0
    elif gpus is None:
        gpus = 1 if options.slurm is not None else min(1, found)
    if gpus > found and options.slurm is None and not options.dry_run:
        fix = f"give --gpus 1..{found} or --cpu" if found else "give --cpu"
        raise ConfigurationError(
            f"--gpus is {gpus}, but torch can use {found or 'none'} of this machine; {fix}"
        )
    allocated = int(os.environ.get("SLURM_JOB_NUM_NODES", 1)) if "SLURM_JOB_ID" in os.environ else 1
    if options.nodes > allocated and options.slurm is None and not options.dry_run:
        raise ConfigurationError(
            f"--nodes is {options.nodes}, more than the {allocated} here; submit a job by --slurm, "
            f"or start this in an allocation (salloc --nodes={options.nodes})"
        )
    return Device(
        gpus=gpus, processes=options.cpu or 1, threads=options.threads, nodes=options.nodes
    )


def split_batch(per_update: int, most: int, workers: int, unit: str = "tokens") -> Batch:
    """Split an update over devices: the fewest passes that fit, all of the same size.

    **D**: where the number of devices does not divide the batch, the update is smaller by less
    than one token (or sentence) a device and pass, never larger.

    >>> split_batch(4096, 4096, 1).update_freq, split_batch(4096, 4096, 2).per_pass
    (1, 2048)
    >>> split_batch(25000, 4096, 2).update_freq
    4
    >>> print(split_batch(25000, 4096, 7))
    24,997 tokens per update = 3,571 tokens x 7 device(s) x 1 accumulated, 3 fewer than the \
configured 25,000

    Args:
        per_update: tokens or sentences, the ``unit``, of an update.
        most: the most of them for one device in one pass.
        workers: the number of devices.
        unit: ``tokens`` or ``sentences``.
    """
    if per_update < workers:
        raise ConfigurationError(
            f"{per_update} {unit} per update cannot be split over {workers} devices; use fewer"
        )
    passes = min(-(-per_update // (workers * most)), per_update // workers)
    return Batch(per_update // (workers * passes), passes, workers, per_update, unit)


def train_prefix(device: Device, python: str) -> List[str]:
    """Return the program and the first arguments that start a training on the device."""
    training = ["-m", "capsnmt.launch.train"]
    processes = device.gpus or device.processes
    if device.nodes > 1:
        # D: with GPUs one task a node, which starts its own processes: as fairseq does on SLURM.
        tasks = 1 if device.gpus else device.processes
        step = [f"--nodes={device.nodes}", f"--ntasks={device.nodes * tasks}"]
        step += [f"--ntasks-per-node={tasks}"]
        # the job has all cores of a node for one task
        step += [f"--cpus-per-task={device.threads or 1}"] if tasks > 1 else []
        return ["srun", *step, "--kill-on-bad-exit=1", python, *training]
    if processes > 1:
        workers = ["--standalone", f"--nproc_per_node={processes}"]
        return [python, "-m", "torch.distributed.run", *workers, *training]
    return [python, *training]

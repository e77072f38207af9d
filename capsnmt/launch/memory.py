"""The peak memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_memory(device: torch.device) -> float:
    """Return the peak in GiB: of the tensors on a GPU, otherwise of the whole process.

    Args:
        device: where the process computes.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    if STATUS.is_file():
        for line in STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    # macOS, in bytes; on Linux this could be the peak of the parent when it started this process
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**30

"""The machine of this process, in words: measured times mean nothing without it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Dict

GIB = 1 << 30


def describe_machine() -> Dict[str, str]:
    """Return processor, number of usable cores, memory and operating system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": str(cores()),
        "memory": f"{memory / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor; Python alone does not know it on Linux."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""This machine: its processor and cores, and how memory is allocated for large tensors."""

import ctypes
import functools
import os
import platform
import re
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import Dict, Optional

# malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
KEPT_BYTES = 2**31 - 1
"""Free memory at the end of the heap above this is returned; the largest that ``mallopt`` takes."""


def cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many this process may use: a job has some of its node, a container a share.

    ``limit`` is the file of cgroup v2 with the time that a container has in each period.
    """
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, limit.read_text("utf-8").split())
    except (OSError, ValueError):  # no limit
        return seen
    return min(seen, -(-quota // period))


CORES = cores()


@functools.cache
def keep_freed_memory(device_type: str) -> bool:
    """Let glibc's malloc keep the memory of large tensors, and return whether it does.

    It asks the system for each tensor above 32 MB and returns it at once, and the kernel fills it
    with zeros, page by page: of a beam search of 64 sentences, 5 to 12% of the processor time.

    Only commands call it, for it is a setting of the process. Environment variables would come too
    late for a command that the user has started.

    **D**: whoever tunes malloc by its environment variables decides alone. Other allocators are
    left alone, and so is the process of a model that is not on a CPU.
    """
    if device_type != "cpu" or _malloc_is_tuned() or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: False)
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


def tcmalloc() -> Dict[str, str]:
    """Return the variables with which a process has tcmalloc, where the system has it.

    Batches of many shapes leave holes in glibc's heap, which it searches for each large tensor;
    tcmalloc joins what is free: a tiny Transformer trains 1.3 times as fast (docs/speed.md).

    **D**: as above; and whoever sets ``LD_PRELOAD``, be it to nothing, decides alone.
    """
    library = _tcmalloc_library()
    if library is None or os.environ.get("LD_PRELOAD", library) != library or _malloc_is_tuned():
        return {}
    # of itself it returns memory to the system, and asks for it again
    return {"LD_PRELOAD": library, "TCMALLOC_RELEASE_RATE": "0"}


@functools.cache
def _tcmalloc_library() -> Optional[str]:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return find_library("tcmalloc_minimal") or find_library("tcmalloc")
    except OSError:  # it lies in a folder with a space: Python and the loader cut its name there
        return None


def _malloc_is_tuned() -> bool:
    tuned = any(name.startswith("MALLOC_") for name in os.environ)
    return tuned or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")


def cpu_info() -> str:
    """Return what the system says of its processors, which may be nothing."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def processor() -> str:
    """Return the name of the processor; Python alone does not know it on Linux."""
    named = re.search(r"(?m)^model name\s*:[ \t]*(.*\S)", cpu_info())
    return named[1] if named else platform.processor() or platform.machine() or "unknown"


if __name__ == "__main__":
    print(CORES)

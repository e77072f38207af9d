"""This machine: the name of its processor, cores, and memory that is kept for large tensors."""

import ctypes
import functools
import os
import platform
import re
import sys
from pathlib import Path

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Those that this process may use: a job has some cores of its node."""
# malloc.h
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
KEPT_BYTES = 2**31 - 1
"""Free memory at the end of the heap above this is returned; the largest that ``mallopt`` takes."""


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
    tuned = any(name.startswith("MALLOC_") for name in os.environ)
    tuned = tuned or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if device_type != "cpu" or tuned or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: False)
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


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

"""``python -m tests.faults.observed MODULE ARGUMENTS``: run a command; report what it left.

The last line of the standard error says how many megabytes of a freed tensor stay with the
process, and how often it has loaded each checkpoint.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Optional, Tuple
from typing import Counter as Counts

MEGABYTES = 256  # of the tensor: far more than malloc ever keeps by itself


def kept_megabytes() -> int:
    """Return how much of the memory of a large tensor stays when it is freed."""
    import torch

    before = _resident()
    del_me: Any = torch.ones(MEGABYTES << 18)
    del del_me
    return _resident() - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize() >> 20


def count_loads(loads: Counts[str]) -> None:
    """Count, by the names of the files, what ``torch.load`` opens from now on."""

    def hook(event: str, arguments: Tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith(".pt") and _within_torch_load():
            loads[os.path.basename(arguments[0])] += 1

    sys.addaudithook(hook)


def _within_torch_load() -> bool:
    frame: Optional[Any] = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "load" and code.co_filename.endswith("torch/serialization.py"):
            return True
        frame = frame.f_back
    return False


def main() -> None:
    """Run the command, and write what it leaves as JSON."""
    loads: Counts[str] = Counter()
    count_loads(loads)
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    finally:
        left = {"kept": kept_megabytes(), "loads": loads}
        print(json.dumps(left), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

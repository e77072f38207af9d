"""``python -m tests.faults.observed MODULE ARGUMENTS``: run a command; report what it left.

The last line of the standard error says how many megabytes of a freed tensor stay with the
process, and how often it has loaded each checkpoint.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from typing import Counter as Counts

from tests import forked

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
    """Count, by the names of the files, what ``torch.load`` reads from now on."""
    import torch

    load = torch.load

    def counted(file: Any, *arguments: Any, **options: Any) -> Any:
        loads[os.path.basename(getattr(file, "name", file))] += 1
        return load(file, *arguments, **options)

    torch.load = counted


def main() -> None:
    """Run the command, and write what it leaves as JSON."""
    loads: Counts[str] = Counter()
    count_loads(loads)
    sys.argv = sys.argv[1:]
    try:
        forked.execute(sys.argv[0])
    finally:
        left = {"kept": kept_megabytes(), "loads": loads}
        print(json.dumps(left), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Commands that run observed, as entry points that :mod:`tests.forked` starts."""

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


def observed() -> None:
    """Run ``MODULE ARGUMENTS``; write what it leaves as JSON, the last line of its errors.

    How many megabytes of a freed tensor stay with the process, and how often it has loaded each
    checkpoint.
    """
    loads: Counts[str] = Counter()
    count_loads(loads)
    sys.argv = sys.argv[1:]
    try:
        forked.execute(sys.argv[0])
    finally:
        left = {"kept": kept_megabytes(), "loads": loads}
        print(json.dumps(left), file=sys.stderr, flush=True)


def use_a_model() -> None:
    """Train and decode with a model, as a program does that runs no command."""
    from tests.support import build

    model = build("capsnmt_transformer").train()
    model.eval().make_generation_fast_()

"""Commands that run observed, as entry points that :mod:`tests.forked` starts."""

import resource
import sys
from pathlib import Path
from typing import Any

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


def observed() -> None:
    """Run ``MODULE ARGUMENTS``; its last line are the megabytes that stay of a freed tensor."""
    sys.argv = sys.argv[1:]
    try:
        forked.execute(sys.argv[0])
    finally:
        print(kept_megabytes(), file=sys.stderr, flush=True)


def on_a_full_disk() -> None:
    """Run ``MODULE ARGUMENTS``, of which no file gets more than 80 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (80 << 10, 80 << 10))
    sys.argv = sys.argv[1:]
    forked.execute(sys.argv[0])


def use_a_model() -> None:
    """Train and decode with a model, as a program does that runs no command."""
    from tests.support import build

    model = build("capsnmt_transformer").train()
    model.eval().make_generation_fast_()

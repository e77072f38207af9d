"""What only makes a CPU fast: one file each, with torch alone. docs/cpu.md says what each is for.

A GPU and a graph that torch records run as if this folder did not exist.
"""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Return whether a caller's ``torch.compile`` or ``torch.export`` records this call.

    What it records serves batches of any size. ``torch.compiler.is_compiling`` would be true in
    every thread while one of them compiles.
    """
    is_compiling = getattr(torch.compiler, "is_dynamo_compiling", bool)  # torch < 2.3 has none
    is_exporting = getattr(torch.compiler, "is_exporting", bool)  # nor has torch < 2.7
    return bool(is_compiling()) or bool(is_exporting())

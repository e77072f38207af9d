"""``python -m tests.faults.library``: what a program does with a model, without any command."""

from __future__ import annotations

import capsnmt.plugin  # noqa: F401
from tests.support import build

if __name__ == "__main__":
    model = build("capsnmt_transformer").train()
    model.eval().make_generation_fast_()

"""The dropout of the modules with fairseq's switch for inference."""

from __future__ import annotations

import torch.nn as nn
from fairseq.modules import FairseqDropout

from capsnmt.modules.dropout import Dropout


class RetainedDropout(Dropout):
    """Dropout that ``--retain-dropout`` keeps at inference, by the name of its module."""

    make_generation_fast_ = FairseqDropout.make_generation_fast_

    def __init__(self, p: float, module_name: str) -> None:
        super().__init__(p)
        self.module_name = module_name
        self.apply_during_inference = False

    def rate(self) -> float:
        """Return the probability with which a feature is dropped now."""
        return float(self.p) if self.apply_during_inference else super().rate()


def replace_dropout(module: nn.Module) -> None:
    """Replace fairseq's dropout by :class:`RetainedDropout` everywhere in a module."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if type(child) is FairseqDropout:
                setattr(parent, name, RetainedDropout(child.p, child.module_name))

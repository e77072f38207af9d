"""What the modules may compute otherwise than by torch's own functions, where that is faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch.nn.functional as F
from torch import Tensor


def never(q: Tensor, k: Tensor) -> bool:
    """Return that attention does not train by matrix products."""
    return False


@dataclass
class Shortcuts:
    """Functions that :mod:`capsnmt.fast` replaces; by themselves plain torch.

    Attributes:
        dropout: ``dropout(x, p)`` drops features of x with probability p > 0.
        products_are_faster: whether attention of queries to keys, both ``[B, H, L, d_h]``, trains
            faster by plain matrix products than by torch's fused call.
    """

    dropout: Callable[[Tensor, float], Tensor]
    products_are_faster: Callable[[Tensor, Tensor], bool]


SHORTCUTS = Shortcuts(F.dropout, never)

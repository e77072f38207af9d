"""Attention over depth on a CPU, by ``depth.cpp``."""

from __future__ import annotations

import ctypes
from typing import Optional, Sequence

import torch
from torch import Tensor

from capsnmt.fast.cpp import build
from capsnmt.routing.tracing import is_watched


def mixture(query: Tensor, values: Sequence[Tensor]) -> Optional[Tensor]:
    """Return ``depth_mixture`` of a query ``[d]`` and values ``[.., d]``, or None: torch's is due.

    It is so in other precisions and on other devices, and where autograd follows.
    """
    every = (query, *values)
    own = all(x.device.type == "cpu" and x.dtype == torch.float32 for x in every)
    own = own and query.shape == values[0].shape[-1:] and len({x.shape for x in values}) == 1
    trained = torch.is_grad_enabled() and any(x.requires_grad for x in every)
    if not own or trained or is_watched(every) or not build.is_built("depth"):
        return None
    query, *values = (x.contiguous() for x in every)
    output, size = torch.empty_like(values[0]), query.numel()
    rows = output.numel() // max(1, size)
    scores = output.new_empty(rows, len(values))
    addresses = (ctypes.c_void_p * len(values))(*(x.data_ptr() for x in values))
    build.kernel("depth", "mixture", ctypes.c_void_p, integers=7)(
        *(addresses, len(values), query.data_ptr(), rows, size),
        *(scores.data_ptr(), output.data_ptr(), torch.get_num_threads()),
    )
    return output

"""The softmax of the loss on a CPU, by ``loss.cpp``."""

from __future__ import annotations

import torch
from torch import Tensor

from capsnmt.fast.cpp import build
from capsnmt.modules import shortcuts
from capsnmt.routing.tracing import is_watched


def softmax_(scores: Tensor, words: Tensor) -> Tensor:
    """Put the softmax in place of scores: :func:`capsnmt.modules.shortcuts.softmax_`."""
    own = scores.device.type == words.device.type == "cpu" and scores.dtype in build.PRECISIONS
    own = own and scores.is_contiguous() and not scores.requires_grad
    own = own and not is_watched([scores, words])
    if not own or not build.is_built("loss"):
        return shortcuts.softmax_(scores, words)
    nll = scores.new_empty(words.shape, dtype=torch.float32)
    words = words.contiguous()
    build.kernel("loss", "softmax", integers=7)(
        *(scores.data_ptr(), words.data_ptr(), *scores.shape, scores.dtype == torch.bfloat16),
        *(nll.data_ptr(), torch.get_num_threads()),
    )
    return nll

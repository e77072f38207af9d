"""When attention by plain matrix products is faster than torch's fused call."""

from __future__ import annotations

import torch
from torch import Tensor

from capsnmt.routing.tracing import is_compiled, is_traced

PLAIN_UP_TO = 64
PLAIN_IN_BF16_UP_TO = 128
"""The longest sentence for which plain matrix products train faster than the fused call on a CPU.

CPU time of one thread of a shared Xeon with AMX, forward and backward, 2026-11-22; 8 heads of 64
features, 8 to 512 tokens, with and without mask, medians of 7 alternating pairs. In fp32 the fused
call took 1.1 to 1.3 times as long for up to 32 tokens, as long at 64, and 0.8 times at 512. In bf16
its backward pass is slow for short sentences: 8 times as long at 16 tokens, 3 times at 128, 0.9
times at 256 (torch 2.13.0). torch 2.2.2 has a fused backward pass without a mask only; with one,
both took as long for up to 64 tokens in bf16. Without gradients the fused call is never much
slower, and several times as fast when it decodes in bf16.

Command: ``OMP_NUM_THREADS=1 python -m timeit -p -r 9 -s SETUP "f(CALL)"``, where SETUP is
``import torch; from torch.nn.functional import scaled_dot_product_attention as fused; plain =
lambda q, k, v: (q @ k.mT / 8).softmax(-1) @ v; x = torch.randn(16, 128, 8, 64,
dtype=torch.bfloat16, requires_grad=True); y = x.permute(1, 2, 0, 3); f = lambda call:
torch.autograd.grad(call(y, y, y).sum(), x)`` and CALL is ``plain`` or ``fused``.
"""


def products_are_faster(q: Tensor, k: Tensor) -> bool:
    """Return whether plain matrix products train faster than the fused call, ``PLAIN_UP_TO``.

    **D**: in a graph of ``torch.compile``, which serves every length, they are: most are short.
    """
    if q.device.type != "cpu":
        return False
    if is_traced():
        return is_compiled()
    limit = PLAIN_IN_BF16_UP_TO if q.dtype == torch.bfloat16 else PLAIN_UP_TO
    return max(q.size(-2), k.size(-2)) <= limit

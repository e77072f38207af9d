"""Simple routing (li2019 Algorithm 1)."""

from typing import List, Optional

from torch import Tensor

from .agreement import route_by_agreement
from .checks import check_votes
from .operator import Operator


def simple_routing(votes: Tensor, iterations: int = 3, backend: str = "auto") -> Tensor:
    """Route by agreement; each output capsule is the squashed weighted mean of its votes.

    Start with b = 0 and repeat T times::

        C[i,n] = softmax over n of b[i,n]                         (li2019 Alg. 1, line 4)
        S[n]   = sum_i C[i,n] V[i,n] / sum_i C[i,n]               (eq 7)
        out[n] = squash(S[n])                                     (eq 8)
        b[i,n] += out[n] . V[i,n]                                 (line 6)

    Args:
        votes: V, ``[..., I, N, D]``, any floating dtype; arithmetic is fp32 or better.
        iterations: T >= 1.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules, ``[..., N, D]``, dtype of ``votes``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> votes = torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]])
    >>> simple_routing(votes, iterations=1)  # means (3, 4) and (.5, .5): 25/26 * .6 = 0.5769
    tensor([[0.5769, 0.7692],
            [0.2357, 0.2357]])
    """
    check_votes(votes)
    return OPERATOR(votes, iterations=iterations, backend=backend)


def simple_kernel(votes: Tensor, iterations: int, trace: Optional[List[Tensor]] = None) -> Tensor:
    """Compute ``simple_routing`` of votes in fp32."""
    out, _ = route_by_agreement(votes, iterations, normalise=True, trace=trace)
    return out


OPERATOR = Operator("simple_routing", simple_kernel, rows=1)

"""Inverted dot-product routing (Tsai et al. 2020)."""

from typing import List, Optional

from torch import Tensor
from torch.nn import functional as F

from .agreement import agreement
from .checks import check_votes
from .numerics import bound_gradient, sum_over_inputs, uniform_coefficients
from .operator import Operator

EPSILON = 1e-5
"""Added to the variance of a capsule's LayerNorm, as torch does."""


def inverted_routing(votes: Tensor, iterations: int = 3, backend: str = "auto") -> Tensor:
    """Route by agreement with the capsules of the last iteration: attention over the outputs.

    Start with r[i,n] = 1/N and repeat T times, with the second line from the second time on::

        p[n]   = LayerNorm(sum_i r[i,n] V[i,n])                   (Tsai et al. 2020, eq 4)
        r[i,n] = softmax over n of p[n] . V[i,n] / sqrt(D)        (eq 2, 3)

    Unlike dynamic routing, logits are not summed over the iterations, and a capsule may be long.

    **D**: T counts the pass with uniform r, as in the authors' program and in the other operators.

    **D**: LayerNorm over D has no gain and no bias; those of the authors' program, 2 D parameters,
    start so. At D = 1, where it would erase the capsule, it is left out, as in that program:
    p[n] then is not normalised.

    Args:
        votes: V, ``[..., I, N, D]``, any floating dtype; arithmetic is fp32 or better.
        iterations: T >= 1.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules p, ``[..., N, D]``, dtype of ``votes``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> votes = torch.tensor([[[1.0], [0.0]], [[3.0], [2.0]]])  # I = 2, N = 2, D = 1
    >>> inverted_routing(votes, iterations=1)  # half of the sums
    tensor([[2.],
            [1.]])
    >>> inverted_routing(votes, iterations=2)  # r[.,0] = logistic(2 - 0), logistic(6 - 2)
    tensor([[3.8268],
            [0.0360]])
    """
    check_votes(votes)
    return OPERATOR(votes, iterations=iterations, backend=backend)


def inverted_kernel(votes: Tensor, iterations: int, trace: Optional[List[Tensor]] = None) -> Tensor:
    """Compute ``inverted_routing`` of votes in fp32."""
    scale = votes.size(-1) ** -0.5
    p = normalised_sums(uniform_coefficients(votes), votes, trace)
    for _ in range(iterations - 1):
        r = bound_gradient((agreement(p, votes) * scale).softmax(-1))
        p = normalised_sums(r, votes, trace)
    return p


def normalised_sums(r: Tensor, votes: Tensor, trace: Optional[List[Tensor]]) -> Tensor:
    """Return p ``[..., N, D]``, and record r."""
    if trace is not None:
        trace.append(r.detach())
    p = sum_over_inputs(r, votes)
    width = votes.size(-1)
    return p if width == 1 else F.layer_norm(p, (width,), eps=EPSILON)


OPERATOR = Operator("inverted_routing", inverted_kernel, rows=1)

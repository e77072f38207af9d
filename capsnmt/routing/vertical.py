"""Vertical routing of capsule-routing self-attention (duan2020 Algorithm 2)."""

from typing import List, Optional, Tuple

from torch import Tensor

from .checks import check_scores
from .dynamic import dynamic_kernel
from .operator import Operator


def vertical_routing(
    scores: Tensor,
    iterations: int = 3,
    query_mask: Optional[Tensor] = None,
    key_mask: Optional[Tensor] = None,
    backend: str = "auto",
) -> Tuple[Tensor, Tensor]:
    """Route heads to positions: what all heads agree each query should attend to.

    The input capsules are the heads h, the output capsules are the query positions l, and their
    width is the number of keys::

        V[h -> l] = e[l,h]                                    (duan2020 eq 8)
        Omega, b  = dynamic_routing(V)                        (eq 9)

    The head weights softmax(W^up [sum_l b[h,l]]_h + b^up) (eq 10, 11) have parameters and belong
    to the attention module.

    **D**: padding on either side takes no part: a padded query is not an output capsule, a padded
    key is 0 in every vote.

    Args:
        scores: e, the unmasked cube of scaled dot products, ``[B, H, L, K]``.
        iterations: T >= 1 (**D**: 3; the paper does not say).
        query_mask: ``[B, L]``, true = real.
        key_mask: ``[B, K]``, true = real.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules Omega ``[B, L, K]`` and logits b ``[B, H, L]``, 0 in padded rows and
        columns; both in the dtype of ``scores``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> scores = torch.tensor([[[[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]]])
    >>> capsules, logits = vertical_routing(scores, iterations=1)  # two heads, L = K = 2
    >>> capsules  # C = 1/L: sums (3, 4) and (.5, .5)
    tensor([[[0.5769, 0.7692],
             [0.2357, 0.2357]]])
    >>> logits
    tensor([[[4.8077, 0.2357],
             [4.8077, 0.2357]]])
    """
    check_scores(scores, query_mask, key_mask)
    return OPERATOR(scores, query_mask, key_mask, iterations=iterations, backend=backend)


def vertical_kernel(
    scores: Tensor,
    query_mask: Optional[Tensor],
    key_mask: Optional[Tensor],
    iterations: int,
    trace: Optional[List[Tensor]] = None,
) -> Tuple[Tensor, Tensor]:
    """Compute ``vertical_routing``; the cube ``[B, H, L, K]`` serves as ``[tokens, I, N, D]``."""
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None, :], 0.0)
    return dynamic_kernel(scores, None, query_mask, iterations=iterations, trace=trace)


OPERATOR = Operator("vertical_routing", vertical_kernel, rows=3)

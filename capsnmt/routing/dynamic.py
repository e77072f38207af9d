"""Dynamic routing (dou2019 Algorithm 1, duan2020 Algorithm 1)."""

from typing import List, Optional, Tuple

from torch import Tensor

from .agreement import agreement, route_by_agreement
from .checks import check_mask, check_votes
from .numerics import pair_mask_of
from .operator import Operator


def dynamic_routing(
    votes: Tensor,
    iterations: int = 3,
    input_mask: Optional[Tensor] = None,
    output_mask: Optional[Tensor] = None,
    backend: str = "auto",
) -> Tuple[Tensor, Tensor]:
    """Route by agreement; each output capsule is the squashed weighted sum of its votes.

    Start with b = 0 and repeat T times::

        C[i,n] = softmax over n of b[i,n]              (dou2019 eq 9; duan2020 Alg. 1, R)
        S[n]   = sum_i C[i,n] V[i,n]                   (duan2020 eq 7)
        out[n] = squash(S[n])                          (dou2019 eq 5, duan2020 eq 6)
        b[i,n] += out[n] . V[i,n]                      (dou2019 Alg. 1, line 6)

    Args:
        votes: V, ``[..., I, N, D]``, any floating dtype; arithmetic is fp32 or better.
        iterations: T >= 1.
        input_mask: ``[..., I]``, true = real. A masked input enters no sum, even if its votes are
            not finite, and its logits are 0.
        output_mask: ``[..., N]``, true = real. A masked output enters no softmax; its capsule and
            logits are 0.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules ``[..., N, D]`` and logits ``[..., I, N]``, b after its last update; both
        in the dtype of ``votes``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> votes = torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]])
    >>> capsules, logits = dynamic_routing(votes, iterations=1)
    >>> capsules  # C = 1/2: sums (3, 4) and (.5, .5)
    tensor([[0.5769, 0.7692],
            [0.2357, 0.2357]])
    >>> logits  # (3, 4) . (.5769, .7692) = 4.8077
    tensor([[4.8077, 0.2357],
            [4.8077, 0.2357]])
    """
    check_votes(votes)
    check_mask("input_mask", input_mask, votes.shape[:-2], "[..., I]")
    check_mask("output_mask", output_mask, (*votes.shape[:-3], votes.size(-2)), "[..., N]")
    return OPERATOR(votes, input_mask, output_mask, iterations=iterations, backend=backend)


def dynamic_kernel(
    votes: Tensor,
    input_mask: Optional[Tensor],
    output_mask: Optional[Tensor],
    iterations: int,
    trace: Optional[List[Tensor]] = None,
) -> Tuple[Tensor, Tensor]:
    """Compute ``dynamic_routing`` of votes in fp32."""
    pair_mask = pair_mask_of(input_mask, output_mask)
    if pair_mask is not None:
        # Masking C is not enough: a masked vote may be infinite, and 0 * inf is NaN.
        votes = votes.masked_fill(~pair_mask.unsqueeze(-1), 0.0)
    out, b = route_by_agreement(
        votes, iterations, normalise=False, pair_mask=pair_mask, trace=trace
    )
    return out, b + agreement(out, votes)


OPERATOR = Operator("dynamic_routing", dynamic_kernel, rows=3)

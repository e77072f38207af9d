"""Horizontal (positional) routing of capsule-routing self-attention (duan2020 Algorithm 3)."""

from typing import List, Optional

from torch import Tensor

from .agreement import squash
from .checks import check_scores
from .numerics import bound_gradient, pair_mask_of
from .operator import Operator


def horizontal_routing(
    scores: Tensor,
    iterations: int = 3,
    query_mask: Optional[Tensor] = None,
    key_mask: Optional[Tensor] = None,
    causal: bool = False,
    newest_only: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Route positions to heads, for every query l over the positions t <= l.

    The input capsules of partial routing l are the positions t <= l, its output capsules are the
    heads h, and their width is the number of keys::

        V[t -> h] = e[t,h]                                    (duan2020 eq 12)
        Omega_l   = dynamic_routing({V[t -> h], t <= l})      (eq 13, 14)

    All L partial routings run at once. Let b[l,t,h] be the logits of the l-th. At b = 0 every R is
    1/H and S_l[h] is a prefix sum over t. Each later iteration is a batched matrix product for
    b[l,t,h] += Omega_l[h] . e[t,h], a softmax over h, and a batched matrix product for
    S_l[h] = sum_{t<=l} R e[t,h]. Memory is that of a few score cubes; no tensor is L x L x K.

    Incremental decoding needs row l alone. It equals
    ``dynamic_routing(scores[:, :, : l + 1].transpose(1, 2))[0]``; ``newest_only`` computes it with
    matrix products, in a fraction of the time.

    **D**: padding on either side takes no part: a padded query neither votes nor receives, a padded
    key is 0 in every vote.

    Args:
        scores: e, the unmasked cube of scaled dot products, ``[B, H, L, K]``.
        iterations: T >= 1 (**D**: 3; the paper does not say).
        query_mask: ``[B, L]``, true = real.
        key_mask: ``[B, K]``, true = real.
        causal: position l's votes for keys k > l count as 0 (section 3.4.3, decoders).
        newest_only: return row l = L alone, as ``[B, H, 1, K]``.
        backend: ``auto``, ``eager``, ``compiled``, ``cpp`` or ``triton``.

    Returns:
        Output capsules Omega, ``[B, H, L, K]``, 0 in padded rows and columns, dtype of ``scores``.

    Raises:
        ValueError: a shape, dtype, iteration count or backend is not as above.

    >>> import torch
    >>> scores = torch.tensor([[[[2.0], [4.0]], [[2.0], [-6.0]]]])  # H = 2, L = 2, K = 1
    >>> horizontal_routing(scores, iterations=1)  # sums / H: 1, 3 and 1, -2; squash = s|s|/(1+s^2)
    tensor([[[[ 0.5000],
              [ 0.9000]],
    <BLANKLINE>
             [[ 0.5000],
              [-0.8000]]]])
    """
    check_scores(scores, query_mask, key_mask)
    settings = {"iterations": iterations, "causal": causal, "newest_only": newest_only}
    return OPERATOR(scores, query_mask, key_mask, backend=backend, **settings)


def horizontal_kernel(
    scores: Tensor,
    query_mask: Optional[Tensor],
    key_mask: Optional[Tensor],
    iterations: int,
    causal: bool,
    newest_only: bool,
    trace: Optional[List[Tensor]] = None,
) -> Tensor:
    """Compute ``horizontal_routing``; the traced R is ``[B, L, L, H]``, 0 at t > l and padding."""
    pairs = pair_mask_of(query_mask, key_mask)
    e = scores if pairs is None else scores.masked_fill(~pairs.unsqueeze(1), 0.0)
    e = e.tril() if causal else e
    heads, length = e.shape[1:3]
    routings = 1 if newest_only else length
    if trace is not None:
        uniform = e.new_full((), 1.0 / heads).expand(e.size(0), heads, routings, length)
        trace.append(traced(uniform if newest_only else uniform.tril(), query_mask))
    prefix_sums = e.sum(-2, keepdim=True) if newest_only else e.cumsum(-2)
    omega = squash(prefix_sums / heads)
    b = e.new_zeros(())
    for _ in range(iterations - 1):
        b = b + omega @ e.transpose(-1, -2)
        R = bound_gradient(b.softmax(1))
        R = R if newest_only else R.tril()  # position l receives from t <= l, the newest from all
        if trace is not None:
            trace.append(traced(R, query_mask))
        omega = squash(R @ e)
    if query_mask is None:
        return omega
    return omega.masked_fill(~query_mask[:, None, -routings:, None], 0.0)


OPERATOR = Operator("horizontal_routing", horizontal_kernel, rows=3, has_products=True)


def traced(R: Tensor, query_mask: Optional[Tensor]) -> Tensor:
    """Return R ``[B, H, l, t]`` as recorded, ``[B, l, t, H]``, with 0 at padded l and t.

    The rows l are all rows or only the last.
    """
    R = R.detach().permute(0, 2, 3, 1)
    if query_mask is None:
        return R
    pairs = query_mask[:, -R.size(1) :, None] & query_mask[:, None, :]
    return R.masked_fill(~pairs.unsqueeze(-1), 0.0)

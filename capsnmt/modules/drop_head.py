"""DropHead: dropout of whole attention heads."""

import torch
from torch import Tensor, nn

from capsnmt.routing.numerics import compute_dtype


class DropHead(nn.Module):
    r"""Dropout of the heads of an attention in training (Zhou et al. 2020, Scheduled DropHead).

    .. math::
        O'_h = \frac{H}{\sum_g \xi_g} \, \xi_h O_h, \qquad \xi_h \sim \mathrm{Bernoulli}(1 - p_u)

    for the heads O of one sentence, in front of what aggregates them. There are no parameters. p in
    the update after u others falls from P to 0 in N updates and rises to P again in M:

    .. math::
        p_u = P \cdot \begin{cases} 1 - u / N & u < N \\ \min(1, (u - N) / M) & u \ge N \end{cases}

    the paper's V, whose left side is the warm-up. With N = M = 0 it is P.

    **D**: one P at both ends of the V.

    **D**: heads are drawn for each sentence, as dropout is, and the same ones for all of its
    positions, in every attention.

    **D**: where all heads would be dropped, which leaves nothing to scale, one of them is kept:
    that of the largest random number.

    **D**: the rate is a tensor, not stored in checkpoints: one graph (``--compile``) serves every
    update.

    Args:
        p: P, at least 0 and below 1.
        fall_updates: N.
        rise_updates: M.

    Raises:
        ValueError: p is not as above.

    >>> drop, heads = DropHead(0.5), torch.ones(100, 4, 7, 2)  # [B, H, L, d_h]
    >>> kept = drop(heads)
    >>> kept.shape, kept.sum(1).unique().tolist()  # the same sum over heads as without it
    (torch.Size([100, 4, 7, 2]), [4.0])
    >>> torch.equal(drop.eval()(heads), heads)
    True
    """

    rate: Tensor

    def __init__(self, p: float, fall_updates: int = 0, rise_updates: int = 0) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must be at least 0 and below 1, not {p}")
        self.p, self.fall_updates, self.rise_updates = p, fall_updates, rise_updates
        self.register_buffer("rate", torch.empty(()), persistent=False)
        self.set_num_updates(0)

    def rate_at(self, update: int) -> float:
        """Return p in the update after ``update`` others.

        >>> [DropHead(0.5, fall_updates=2, rise_updates=4).rate_at(update) for update in range(8)]
        [0.5, 0.25, 0.0, 0.125, 0.25, 0.375, 0.5, 0.5]
        """
        if update < self.fall_updates:
            return self.p * (1 - update / self.fall_updates)
        risen = update - self.fall_updates
        return self.p * (risen / self.rise_updates if risen < self.rise_updates else 1.0)

    def set_num_updates(self, num_updates: int) -> None:
        """Take the number of updates before the current one, which fairseq's trainer sets."""
        self.rate.fill_(self.rate_at(num_updates))

    def forward(self, heads: Tensor) -> Tensor:
        """Drop heads of ``[B, H, L, d_h]`` in training."""
        if not self.training:
            return heads
        drawn = torch.rand(heads.shape[:2], device=heads.device)
        kept = (drawn >= self.rate) | (drawn == drawn.amax(dim=1, keepdim=True))
        scale = kept.to(compute_dtype(heads))
        scale = scale * heads.size(1) / scale.sum(dim=1, keepdim=True)
        return heads * scale[:, :, None, None].type_as(heads)

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return f"p={self.p}, fall_updates={self.fall_updates}, rise_updates={self.rise_updates}"

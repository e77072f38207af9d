"""Composed heads: talking heads whose maps over the heads depend on the query and on the key."""

import functools
import math
from typing import Callable, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.routing.numerics import compute_dtype

from .talking import HeadMixing

EPSILON = 1e-6
Mixing = Callable[[Tensor], Tensor]
"""A map of scores or weights ``[B, H, L, K]`` over the heads."""


class HeadComposition(nn.Module):
    r"""Dynamically composable attention, DCMHA (Xiao et al. 2024, arXiv 2405.08553).

    Both before and after the softmax the H numbers x of a query l and a key k, one of each head,
    become, with the static map S of talking heads,

    .. math::
        x' = \bigl(S + M(q_l) + M(k_k)\bigr) \, x, \qquad
        M = \sum_{i=1}^{r} w^{out}_i {w^{in}_i}^\top + \mathrm{diag}(g)

    A position's :math:`w^{in}_i, w^{out}_i` and g, each H numbers, are made of its input u, that of
    the projection of the query or of the key:

    .. math::
        h = \mathrm{GELU}(W_1 u), \quad w^{in} = \mathrm{RMSNorm}(A h), \quad w^{out} = B h, \quad
        g = \tanh(W_g u)

    The norm is over the heads and has no gain; h has 2 r H features, for each of the two maps and
    sides its own. With u of d features there are :math:`8 d r H + 16 r^2 H^2 + 4 d H + 2 H^2`
    parameters.

    **D**: as talking heads, it starts as the Transformer: S is the identity, :math:`w^{out}` and g
    are 0. In the authors' program for PyTorch, which trained models fill, all is 0, so that nothing
    would learn; their program that trains draws all of it small. :math:`W_1` starts as there,
    normal with variance 2 / (d + 2 r H), and A, whose size the norm takes out, with 1 / (2 r H).

    **D**: S is part of it, as in the paper's equations; the authors' released models leave it out
    for speed.

    **D**: in encoder-decoder attention, u of a key is its encoding.

    Args:
        query_dim: the width of the queries' sequence.
        key_dim: the width of the keys' sequence.
        num_heads: H, the heads of the attention call.
        rank: r.

    Raises:
        ValueError: r is below 1.

    >>> composition = HeadComposition(16, 16, num_heads=4)
    >>> x = torch.randn(5, 3, 16)  # L = 5, B = 3
    >>> q = k = torch.randn(3, 4, 5, 4)  # [B, H, L, d_h]
    >>> q, k, before, after = composition.mixings(
    ...     torch.cat([q, composition.query(x)], -1), torch.cat([k, composition.key(x)], -1)
    ... )
    >>> scores = q @ k.mT
    >>> torch.allclose(before(scores), scores)  # at the start
    True
    """

    def __init__(self, query_dim: int, key_dim: int, num_heads: int, rank: int = 2) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        self.rank = rank
        self.before, self.after = HeadMixing(num_heads), HeadMixing(num_heads)
        self.query = MapWeights(query_dim, num_heads, rank)
        self.key = MapWeights(key_dim, num_heads, rank)

    def mixings(self, q: Tensor, k: Tensor) -> Tuple[Tensor, Tensor, Mixing, Mixing]:
        """Return queries and keys without what they carry, and the maps around the softmax.

        Args:
            q: ``[B, H, L, d_h + 2 (2 r + 1)]``: queries, then what :attr:`query` makes of them.
            k: ``[B, H, K, d_h + 2 (2 r + 1)]``: keys, then what :attr:`key` makes of them.
        """
        (q, of_queries), (k, of_keys) = self.maps(q), self.maps(k)
        before, after = (
            functools.partial(composed, static.weight, *maps)
            for static, *maps in zip((self.before, self.after), of_queries, of_keys)
        )
        return q, k, before, after

    def maps(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        """Split queries or keys from what they carry; return them and their M, ``[2, B, P, H, H]``.

        M is of the map before the softmax and of the one after it.
        """
        carried = 2 * (2 * self.rank + 1)
        x, weights = x.split([x.size(-1) - carried, carried], dim=-1)
        weights = weights.transpose(1, 2).unflatten(-1, (2, -1)).movedim(-2, 0)
        w_in, w_out, g = weights.split([self.rank, self.rank, 1], dim=-1)
        return x, w_out @ w_in.mT + torch.diag_embed(g.squeeze(-1))

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return f"rank={self.rank}"


class MapWeights(nn.Module):
    """What one side, queries or keys, brings to the maps: w_in, w_out and g of each position.

    See :class:`HeadComposition`.
    """

    def __init__(self, input_dim: int, num_heads: int, rank: int) -> None:
        super().__init__()
        self.rank, features = rank, 2 * rank * num_heads
        self.hidden = nn.Linear(input_dim, 2 * features, bias=False)
        self.to_in = nn.Parameter(torch.empty(2, features, rank * num_heads))
        self.to_out = nn.Parameter(torch.zeros(2, features, rank * num_heads))
        self.gates = nn.Linear(input_dim, 2 * num_heads, bias=False)
        nn.init.normal_(self.hidden.weight, std=math.sqrt(2 / (input_dim + features)))
        nn.init.normal_(self.to_in, std=1 / math.sqrt(features))
        nn.init.zeros_(self.gates.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weights of positions ``[P, B, d]`` by head: ``[B, H, P, 2 (2 r + 1)]``.

        Head first, they travel with a query or a key of each head, also through the cache.
        """
        hidden = F.gelu(self.hidden(x)).unflatten(-1, (2, -1))
        to_both = torch.cat([self.to_in, self.to_out], dim=-1)
        both = torch.einsum("pbmf,mfi->pbmi", hidden, to_both)
        w_in, w_out = both.unflatten(-1, (2, self.rank, -1)).unbind(-3)
        g = torch.tanh(self.gates(x)).unflatten(-1, (2, 1, -1))
        weights = torch.cat([normalised(w_in), w_out, g], dim=-2)  # [P, B, 2, 2 r + 1, H]
        return weights.permute(1, 4, 0, 2, 3).flatten(3)


def normalised(x: Tensor) -> Tensor:
    """Return vectors ``[..., H]`` divided by their root mean square, which is taken in fp32."""
    exact = x.to(compute_dtype(x))
    return (exact * (exact.square().mean(-1, keepdim=True) + EPSILON).rsqrt()).type_as(x)


def composed(static: Tensor, of_queries: Tensor, of_keys: Tensor, x: Tensor) -> Tensor:
    """Return x' of ``[B, H, L, K]``, by S and M of the queries ``[B, L, H, H]``, of the keys."""
    by_query = (static + of_queries) @ x.transpose(1, 2)
    by_key = of_keys @ x.permute(0, 3, 1, 2)
    return by_query.transpose(1, 2) + by_key.permute(0, 2, 3, 1)

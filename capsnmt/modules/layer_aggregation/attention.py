"""Attention over depth: of the top only, or in place of every residual sum."""

from typing import List, Sequence, Tuple

import torch
from torch import Tensor, nn

from capsnmt.modules.shortcuts import SHORTCUTS
from capsnmt.routing.inputs_kept import keep_inputs
from capsnmt.routing.numerics import compute_dtype, without_autocast

from .base import LayerAggregation, check_count, check_positive
from .connection import LayerConnection


def stack_values(values: Sequence[Tensor]) -> Tensor:
    """Return n values ``[..., d]`` as one tensor ``[..., n, d]``, in fp32 or better."""
    stacked = torch.stack(tuple(values), dim=-2)
    return stacked.to(compute_dtype(stacked))


def depth_scores(query: Tensor, V: Tensor) -> Tuple[Tensor, Tensor]:
    """Return s_i = query . v_i / RMS(v_i) and 1 / RMS(v_i), ``[..., n]``, of V ``[..., n, d]``."""
    mean_square = torch.linalg.vector_norm(V, dim=-1).square() / V.size(-1)
    scale = (mean_square + 1e-6).rsqrt()  # a constant: dynamo cannot trace a global number here
    return (V @ query.to(V.dtype)) * scale, scale


def depth_mixture(query: Tensor, *values: Tensor) -> Tensor:
    """Return sum_i p_i v_i ``[..., d]``, p = softmax_i(query . v_i / RMS(v_i)).

    >>> values = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])]
    >>> depth_mixture(torch.zeros(2), *values)  # every p_i is 1/2
    tensor([2., 2.])
    """
    found = SHORTCUTS.mix_over_depth(query, values)
    if found is not None:
        return found
    # autocast would round the values to the precision of matrix products
    with without_autocast(query.device):
        V = stack_values(values)
        p = depth_scores(query, V)[0].softmax(-1)
        return (p.unsqueeze(-2) @ V).squeeze(-2).to(values[0].dtype)


def depth_mixture_gradients(
    gradients: Sequence[Tensor], query: Tensor, *values: Tensor
) -> Tuple[Tensor, ...]:
    r"""Return the gradients of the query and of each value.

    With the gradient G of the mixture, r_i = 1 / RMS(v_i) and the scores s_i:
    dp_i = G . v_i, ds_i = p_i (dp_i - sum_j p_j dp_j), dquery = sum_i ds_i r_i v_i, and
    dv_i = p_i G + ds_i (r_i query - s_i r_i^2 v_i / d).
    """
    (gradient,) = gradients
    with without_autocast(query.device):
        V = stack_values(values)
        s, r = depth_scores(query, V)
        G, p = gradient.to(V.dtype), s.softmax(-1)
        dp = (V @ G.unsqueeze(-1)).squeeze(-1)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        both = torch.stack((G, query.to(V.dtype).expand_as(G)), dim=-2)
        dV = torch.stack((p, ds * r), dim=-1) @ both
        dV = dV.addcmul((ds * s * r.square()).unsqueeze(-1), V, value=-1 / V.size(-1))
        dquery = (ds * r).flatten() @ V.flatten(0, -2)
    return (dquery.to(query.dtype), *dV.to(gradient.dtype).unbind(-2))


class DepthAttention(LayerAggregation):
    r"""Attention over depth, of the top only: the equation of Attention Residuals, in one place.

    .. math:: \tilde H = \sum_l \alpha_l H^l, \quad
        \alpha_l = \mathrm{softmax}_l(q \cdot \mathrm{RMSNorm}(H^l)), \quad
        \mathrm{RMSNorm}(x) = g \odot x / \sqrt{\mathrm{mean}(x^2) + \epsilon}

    The one-pass control for routing over layers: agreement with a query that all positions share,
    and no iteration. 2 d parameters, q and the gain g. The mechanism of arXiv 2603.15031, in which
    every sublayer reads such a mixture, is :class:`AttentionResiduals`.

    **D**: q starts at 0, so that the aggregate starts as the mean of the layers. The gain then has
    no gradient until q has moved.

    **D**: scores, softmax and mixture are computed in fp32 (fp64 for fp64) in every precision,
    because the scores are sums of d products.

    >>> layers = [torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0])]  # L = 2, d = 2
    >>> DepthAttention(2, num_layers=2)(layers).tolist()  # starts as their mean
    [2.0, 2.0]
    """

    def __init__(self, embed_dim: int, num_layers: int) -> None:
        super().__init__(embed_dim, num_layers)
        self.query = nn.Parameter(torch.zeros(embed_dim))
        self.gain = nn.Parameter(torch.ones(embed_dim))

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Return the aggregate ``[..., d]`` of L layers ``[..., d]``."""
        check_count(layers, self.num_layers)
        return depth_mixture(self.query * self.gain, *layers)

    def contributions(self, layers: List[Tensor]) -> Tensor:
        """Return alpha_l H^l of every layer, ``[..., L, d]``."""
        check_count(layers, self.num_layers)
        H = stack_values(layers)
        alpha = depth_scores(self.query * self.gain, H)[0].softmax(-1)
        return alpha.unsqueeze(-1) * H


class AttentionResiduals(LayerConnection):
    r"""Attention Residuals (arXiv 2603.15031): attention over depth in place of every residual sum.

    .. math:: h_l = \sum_{i < l} p_{l,i} v_i, \quad
        p_l = \mathrm{softmax}_i(w_l \cdot \mathrm{RMSNorm}_l(v_i)), \quad
        \mathrm{RMSNorm}_l(x) = g_l \odot x / \sqrt{\mathrm{mean}(x^2) + \epsilon}

    Sublayer l (each attention and each feed-forward network is one) reads h_l and computes v_l,
    without a residual sum; v_0 is the embedding, and h_{n+1} the output of n sublayers. h_1 = v_0
    has no parameters; each other h_l has 2 d, its query w_l and its gain g_l.

    In the block form, S = ``block`` > 1, the v_i are summed in blocks of S sublayers, and sublayer
    l attends to v_0, to the sums of the blocks before it and to the sum so far of its own block.

    Each position is mixed independently, so incremental decoding needs no state.

    **D**: w_l starts at 0, as in the paper: every sublayer starts with the mean of what is below.
    The gains then have no gradient until w_l has moved.

    **D**: blocks count sublayers, from the first; they need not end with a layer, as in the paper.
    The last one may be shorter.

    **D**: with layer dropout, the sublayers of a dropped layer compute 0, so that it adds nothing
    to a block. As a value of its own, 0 has the score 0.

    **D**: values, scores, softmax and mixture are in the precision of the embedding, and in fp32
    where that is half precision. Under autocast they are fp32.

    Args:
        embed_dim: d.
        num_layers: L.
        sublayers: the sublayers of a layer; n = L times as many.
        block: S.

    Raises:
        ValueError: one of them is below 1.

    >>> residuals, below = AttentionResiduals(8, num_layers=1, sublayers=2), []
    >>> h = residuals.follow(torch.randn(5, 3, 8), below)  # the embedding [T, B, d]
    >>> for sublayer in (torch.tanh, torch.sin):
    ...     h = residuals.follow(sublayer(h), below)
    >>> torch.allclose(h, sum(below) / 3)  # starts as the mean
    True
    """

    within_layers = True

    def __init__(self, embed_dim: int, num_layers: int, sublayers: int, block: int = 1) -> None:
        check_positive(embed_dim=embed_dim, num_layers=num_layers, sublayers=sublayers, block=block)
        super().__init__(num_layers * sublayers + 1)
        self.sublayers = sublayers
        self.block = block
        readers = range(num_layers * sublayers)
        self.queries = nn.ParameterList(nn.Parameter(torch.zeros(embed_dim)) for _ in readers)
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(embed_dim)) for _ in readers)

    def add(self, y: Tensor, states: List[Tensor]) -> None:
        """Append v_l ``[..., d]`` (first, the embedding) or, within a block, the sum so far."""
        number = len(states)
        if number:
            y = y.type_as(states[0])
        if number and (number - 1) % self.block:
            y = states[-1] + y
        states.append(y)

    def sources(self, states: Sequence[Tensor]) -> List[Tensor]:
        """Return what is attended to: v_0, the sums of whole blocks, and the last sum."""
        return [*states[: -1 : self.block], states[-1]]

    def query(self, count: int) -> Tensor:
        """Return w_l * g_l of the sublayer that reads ``count`` = l states; the gain of RMSNorm is
        applied to the query once, not to every value."""
        return self.queries[count - 2] * self.gains[count - 2]

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Return h_l ``[..., d]`` of the l states that were added; h_1 is the embedding itself."""
        if len(states) == 1:
            return states[0]
        # autograd would keep a stack of all values for every sublayer, and so n^2 / 2 copies
        inputs = self.query(len(states)), *self.sources(states)
        return keep_inputs(depth_mixture, inputs, {}, depth_mixture_gradients)

    def weights(self, states: Sequence[Tensor]) -> Tensor:
        """Return p_l ``[..., sources]``."""
        V = stack_values(self.sources(states))
        if len(states) == 1:
            return V.new_ones(V.shape[:-1])
        return depth_scores(self.query(len(states)), V)[0].softmax(-1)

    def contributions(self, states: Sequence[Tensor]) -> Tensor:
        """Return p_{l,i} v_i of every source, ``[..., sources, d]``."""
        return self.weights(states).unsqueeze(-1) * stack_values(self.sources(states))

    def skip(self, x: Tensor, states: List[Tensor]) -> Tensor:
        """Return the input of the layer after one that was dropped."""
        for _ in range(self.sublayers):
            self.add(torch.zeros_like(x), states)
        return self(states)

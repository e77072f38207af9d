"""Connections of a stack's layers: what every layer reads depends on all states below it."""

from typing import List, Sequence, Tuple

import torch
from torch import Tensor, nn

from capsnmt.routing.inputs_kept import keep_inputs
from capsnmt.routing.numerics import without_autocast

from .base import check_positive

OVERFLOW_FP16 = ("dlcl", "dense")
"""The connections whose gradients exceed the range of fp16."""


def weighted_sum(weights: Tensor, *states: Tensor) -> Tensor:
    """Return sum_k w_k y_k ``[..., d]`` of the weights ``[n]`` and n states ``[..., d]``.

    >>> weighted_sum(torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor([0.5000, 2.0000])
    """
    # autocast would round the states to the precision of matrix products
    with without_autocast(weights.device):
        stacked = torch.stack(states)
        return torch.tensordot(weights.to(stacked.dtype), stacked, 1)


def weighted_sum_gradients(
    gradients: Sequence[Tensor], weights: Tensor, *states: Tensor
) -> Tuple[Tensor, ...]:
    """Return the gradients of the weights and of each state."""
    (gradient,) = gradients
    with without_autocast(gradient.device):
        of_weights = torch.stack(states).flatten(1) @ gradient.flatten()
        of_states = torch.tensordot(weights.to(gradient.dtype), gradient, 0)
    return (of_weights, *of_states)


class LayerConnection(nn.Module):
    """The input of every layer, or of every sublayer, depends on all states below it.

    y_0 is the embedding, y_l the output of layer l for its input x_l, and x_{L+1} the output of the
    stack. Each position is combined independently, so incremental decoding needs no state.

    **D**: what else reads the stack after layer l (multi-layer attention, an analysis) reads
    x_{l+1}, as layer l + 1 does.

    Attributes:
        num_states: how many states there are when the output of the stack is computed.
        within_layers: whether every sublayer is followed, and not only every layer.
    """

    within_layers = False

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.num_states = num_states

    def add(self, y: Tensor, states: List[Tensor]) -> None:
        """Append the output ``[..., d]`` of the next layer (first, the embedding)."""
        states.append(y)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Return x_{l+1} ``[..., d]`` of the l + 1 states ``[..., d]`` that were added."""
        raise NotImplementedError

    def follow(self, y: Tensor, states: List[Tensor]) -> Tensor:
        """Add the output y_l ``[..., d]`` of layer l (y_0 is the embedding); return x_{l+1}."""
        self.add(y, states)
        return self(states)

    def skip(self, x: Tensor, states: List[Tensor]) -> Tensor:
        """Return the input of the layer after one that was dropped and would have read x."""
        return self.follow(x, states)


class WeightedConnection(LayerConnection):
    r"""The input of every layer is a weighted sum of the outputs of all layers below it.

    .. math:: x_{l+1} = \sum_{k=0}^{l} w_{l,k} y_k, \quad y_l = \mathrm{layer}_l(x_l)

    **D**: with layer dropout, the output of a dropped layer is its input: y_l = x_l.

    **D**: do not train parameters in fp16. The gradient of a weight is a sum over all numbers of a
    state, B x T x d of them: it exceeds the range of fp16 at every useful scale of the loss.

    Args:
        rows: the initial weights w_l of each sum, ordered by length; the longest has L + 1.
    """

    def __init__(self, rows: Sequence[Tensor]) -> None:
        super().__init__(len(rows[-1]))
        self.shortest = len(rows[0])
        self.weights = nn.ParameterList(nn.Parameter(row) for row in rows)

    def row(self, count: int) -> Tensor:
        """Return the weights of the sum over ``count`` states."""
        return self.weights[count - self.shortest]

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Return x_{l+1} ``[..., d]`` of the l + 1 states ``[..., d]`` that were added."""
        # autograd would keep a stack of all states for every sum, and so L^2 / 2 copies
        inputs = self.row(len(states)), *states
        return keep_inputs(weighted_sum, inputs, {}, weighted_sum_gradients)

    def contributions(self, states: Sequence[Tensor]) -> Tensor:
        """Return w_{l,k} y_k of every state, ``[..., l + 1, d]``."""
        return self.row(len(states)).unsqueeze(-1) * torch.stack(tuple(states), dim=-2)


class DLCL(WeightedConnection):
    r"""Dynamic linear combination of layers (Wang et al. 2019).

    .. math::
        x_{l+1} = \sum_{k=0}^{l} w_{l,k} \mathrm{LN}_k(y_k)          \quad \text{(pre-norm)}, \quad
        x_{l+1} = \mathrm{LN}_l(\sum_{k=0}^{l} w_{l,k} y_k)          \quad \text{(post-norm)}

    (L + 1) (L + 2) / 2 weights, and 2 d parameters in each of the L + 1 (pre-norm) or L (post-norm)
    normalisations. Every row of weights starts as the mean.

    **D**: pre-norm also normalises the embedding, as in the equation; the released program does
    not. Post-norm does not normalise x_1 = w_{0,0} y_0, as in that program: its only weight would
    have no effect.

    >>> connection = DLCL(8, num_layers=2, normalize_before=False)
    >>> below = []
    >>> x = connection.follow(torch.randn(5, 3, 8), below)  # the embedding [T, B, d]
    >>> for layer in (torch.tanh, torch.sin):
    ...     x = connection.follow(layer(x), below)
    >>> x.shape, len(below)
    (torch.Size([5, 3, 8]), 3)
    """

    def __init__(self, embed_dim: int, num_layers: int, normalize_before: bool) -> None:
        check_positive(embed_dim=embed_dim, num_layers=num_layers)
        super().__init__([torch.full((n,), 1 / n) for n in range(1, num_layers + 2)])
        self.normalize_before = normalize_before
        norms = num_layers + 1 if normalize_before else num_layers
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(norms))

    def add(self, y: Tensor, states: List[Tensor]) -> None:
        """Append the output of the next layer; in a pre-norm stack, normalised."""
        states.append(self.norms[len(states)](y) if self.normalize_before else y)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Return x_{l+1} ``[..., d]``; in a post-norm stack, normalised."""
        x = super().forward(states)
        if self.normalize_before or len(states) == 1:
            return x
        return self.norms[len(states) - 2](x)


class DepthWeightedAverage(WeightedConnection):
    r"""Depth-weighted average of DenseFormer (Pagliardini et al. 2024), without dilation.

    .. math:: x_{l+1} = \sum_{k=0}^{l} w_{l,k} y_k, \quad l \ge 1; \quad x_1 = y_0

    (L + 1) (L + 2) / 2 - 1 weights, which start as the Transformer: w_{l,l} = 1, and 0 elsewhere.

    **D**: the paper's models are pre-norm decoders. In a post-norm stack y_l is the normalised
    output of layer l, and the average is not normalised again.

    >>> connection, below = DepthWeightedAverage(num_layers=1), []
    >>> y = connection.follow(torch.tensor([1.0, 2.0]), below).tanh()
    >>> torch.equal(connection.follow(y, below), y)  # starts as the Transformer
    True
    """

    def __init__(self, num_layers: int) -> None:
        check_positive(num_layers=num_layers)
        super().__init__([torch.eye(n)[-1].clone() for n in range(2, num_layers + 2)])

    def row(self, count: int) -> Tensor:
        """Return the weights of the sum over ``count`` states; of one state, 1."""
        return self.weights[0].new_ones(1) if count == 1 else super().row(count)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Return x_{l+1} ``[..., d]``; x_1 is the embedding itself."""
        return states[0] if len(states) == 1 else super().forward(states)

"""Routing-by-agreement over a stack's layers (Dou et al. 2019)."""

import functools
from typing import Any, Dict, List

import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.algorithms import OF_LAYERS, CapsuleRouting
from capsnmt.modules.block_linear import BlockLinear

from .base import LayerAggregation, reset_linear


class LayerRouting(LayerAggregation, CapsuleRouting):
    r"""Routing-by-agreement of L layers to N output capsules (dou2019 eq 5 to 16).

    .. math::
        \hat H = \mathrm{relu}(W_1 [H^1; ..; H^L] + b_1), \quad
        V_{l \to n} = (W_2 \hat H + b_2)_{l, n}                       \qquad \text{(eq 7, 8)}

    and for EM routing :math:`a_l = \mathrm{logistic}(W_3 \hat H + b_3)_l` (eq 10). The output is
    :math:`[\Omega_1, .., \Omega_N]`, routed from the votes V by Algorithm 1 or 2.

    **D**: eq 7 and 8 leave F_l open. One two-layer network, L d to L d to L d, computes the votes
    of all layers; this agrees with the paper's +18.9M per side. W_3 is L N x L d, one activation
    per pair of layer and output capsule; this agrees with its +28.3M. 2 ((L d)^2 + L d) parameters;
    EM: L d L N + L N + 2 N more.

    **D**: the activation passes through the logistic function. Eq 10 has a linear map, but
    negative "probabilities" would make means and variances meaningless.

    **D**: with ``own`` (dou2019 Table 3) the capsule and votes of layer l are computed from H^l
    alone: each of W_1, W_2, W_3 is block-diagonal, one block per layer. 2 L (d^2 + d) parameters;
    EM: L (d N + N) + 2 N more. The paper reports no count for it.

    Args:
        embed_dim: d.
        num_layers: L, the number of input capsules.
        routing: ``dynamic-routing`` (Algorithm 1), ``em-routing`` (Algorithm 2) or
            ``inverted-routing`` (Tsai et al. 2020), see :mod:`capsnmt.modules.algorithms`.
        num_capsules: N, a divisor of d; 0 means d.
        own: the capsule of layer l is computed from H^l alone.
        iterations: T.
        backend: the routing backend, see :mod:`capsnmt.routing.backend`.
        coefficients: ``agreement``, or ``random``, see :class:`.CapsuleRouting`.

    Raises:
        ValueError: ``routing`` or ``backend`` is unknown, N does not divide d, T is below 1, or
            ``coefficients`` are not as above.

    >>> import torch
    >>> routing = LayerRouting(8, num_layers=3, routing="dynamic-routing", num_capsules=4)
    >>> routing(list(torch.randn(3, 5, 2, 8))).shape  # L = 3 layers [T, B, d]
    torch.Size([5, 2, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        num_layers: int,
        routing: str = "em-routing",
        num_capsules: int = 0,
        own: bool = False,
        iterations: int = 3,
        backend: str = "auto",
        coefficients: str = "agreement",
    ) -> None:
        super().__init__(embed_dim, num_layers)
        sizes = embed_dim, num_layers, num_capsules, iterations
        self.choose_routing(routing, OF_LAYERS, *sizes, coefficients, backend)
        self.own = own
        linear = functools.partial(BlockLinear, num_layers) if own else nn.Linear
        concatenated = num_layers * embed_dim
        self.hidden = linear(concatenated, concatenated)
        self.votes = linear(concatenated, concatenated)
        self.activation = None
        if self.algorithm.reads_activation:
            self.activation = linear(concatenated, num_layers * self.num_capsules)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Apply Glorot initialisation; the algorithm scales the votes and starts its vectors."""
        sizes = self.num_layers, self.num_capsules, self.embed_dim // self.num_capsules
        start = self.algorithm.over_layers(*sizes)
        reset_linear(self.hidden)
        reset_linear(self.votes, gain=start.gain)
        nn.init.constant_(self.votes.bias, start.bias)
        if self.activation is not None:
            reset_linear(self.activation)
        for name, cost in zip(self.algorithm.costs, start.costs):
            nn.init.constant_(getattr(self, name), cost)

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Aggregate L layers, each ``[..., d]``, to ``[..., d]``."""
        hidden = F.relu(self.hidden(self.concatenate(layers)))
        votes = self.split(self.votes(hidden)).unflatten(-1, (self.num_capsules, -1))
        options: Dict[str, Any] = {}
        if self.activation is not None:
            options["input_activation"] = self.split(self.activation(hidden).sigmoid())
            options["variance_floor"] = self.algorithm.variance_floor(self.num_layers)
        return self.route(votes, **options).flatten(-2)

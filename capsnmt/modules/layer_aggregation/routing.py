"""Routing-by-agreement over a stack's layers (Dou et al. 2019)."""

from __future__ import annotations

import functools
import math
from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from capsnmt.routing import dynamic_routing, em_routing
from capsnmt.routing.backend import check_name, usable_backend
from capsnmt.routing.checks import check_iterations

from .base import LayerAggregation, reset_linear

ROUTINGS = ("dynamic-routing", "em-routing")


class BlockLinear(nn.Module):
    """A linear map with a block-diagonal matrix: block l of the output reads block l of the input.

    Args:
        num_blocks: L, a divisor of both widths.
        in_features: width of the input.
        out_features: width of the output.
    """

    def __init__(self, num_blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        shape = (num_blocks, out_features // num_blocks, in_features // num_blocks)
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(out_features))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in]`` to ``[..., out]``, as one batched product over the blocks."""
        blocks, out_width, in_width = self.weight.shape
        by_block = x.reshape(-1, blocks, in_width).transpose(0, 1)
        bias = self.bias.view(blocks, 1, out_width)
        y = torch.baddbmm(bias, by_block, self.weight.transpose(1, 2)).transpose(0, 1).flatten(1)
        return y.reshape(x.shape[:-1] + y.shape[1:])


class LayerRouting(LayerAggregation):
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

    **D**: the activation passes through the logistic function. Eq 10 prints a linear map, but
    negative "probabilities" would make means and variances meaningless.

    **D**: with ``own`` (dou2019 Table 3) the capsule and votes of layer l are computed from H^l
    alone: each of W_1, W_2, W_3 is block-diagonal, one block per layer. 2 L (d^2 + d) parameters;
    EM: L (d N + N) + 2 N more. The paper prints no count for it.

    Args:
        embed_dim: d.
        num_layers: L, the number of input capsules.
        routing: ``dynamic-routing`` (Algorithm 1) or ``em-routing`` (Algorithm 2).
        num_capsules: N, a divisor of d; 0 means d.
        own: the capsule of layer l is computed from H^l alone.
        iterations: T.
        backend: the routing backend, see :mod:`capsnmt.routing.backend`.

    Raises:
        ValueError: ``routing`` or ``backend`` is unknown, N does not divide d, or T is below 1.
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
    ) -> None:
        super().__init__(embed_dim, num_layers)
        num_capsules = num_capsules or embed_dim
        if routing not in ROUTINGS:
            raise ValueError(f"routing {routing!r} is unknown: choose from {', '.join(ROUTINGS)}")
        if num_capsules < 0 or embed_dim % num_capsules:
            raise ValueError(f"{num_capsules} capsules do not divide the width {embed_dim}")
        check_iterations(iterations)
        check_name(backend)
        self.routing = routing
        self.num_capsules = num_capsules
        self.own = own
        self.iterations = iterations
        self.backend = backend
        linear = functools.partial(BlockLinear, num_layers) if own else nn.Linear
        concatenated = num_layers * embed_dim
        self.hidden = linear(concatenated, concatenated)
        self.votes = linear(concatenated, concatenated)
        # None in dynamic routing
        by_em = routing == "em-routing"
        self.activation = linear(concatenated, num_layers * num_capsules) if by_em else None
        self.beta_a = nn.Parameter(torch.empty(num_capsules)) if by_em else None
        self.beta_u = nn.Parameter(torch.empty(num_capsules)) if by_em else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Apply Glorot initialisation; scale the votes so that routing has a useful gradient."""
        reset_linear(self.hidden)
        if self.activation is None:
            self._reset_dynamic_votes()
            return
        reset_linear(self.votes, gain=math.sqrt(2) * self.vote_scale())  # relu halves the power
        reset_linear(self.activation)
        nn.init.constant_(self.beta_a, self.expected_cost())
        nn.init.zeros_(self.beta_u)

    def _reset_dynamic_votes(self) -> None:
        """Start where squash is steepest, with a nearly uniform softmax (**D**).

        In the first iteration S[n] is the sum of L votes / N. With votes around 0 it is about 0,
        and so are squash(S) and its gradient: at N = 512 and the Glorot scale the output is 1e-5.
        With larger votes, the agreement out . V assigns all of a layer to one capsule, and nothing
        learns either. Therefore b_2 sets |S| to 1/sqrt(3), where squash is steepest and returns
        1/4; the contribution of W_2 starts small.
        """
        width = self.embed_dim // self.num_capsules
        reset_linear(self.votes, gain=math.sqrt(2) * min(0.1 * width, 1.0))
        length = self.num_capsules / self.num_layers / math.sqrt(3)
        nn.init.constant_(self.votes.bias, length / math.sqrt(width))

    def vote_scale(self) -> float:
        """Return the standard deviation of the votes of EM routing at the start (**D**).

        EM routing returns A mu, about half the mean of L independent votes. At 2 sqrt(L) the
        aggregate has the size of the H^L of unit variance that it replaces.
        """
        return 2 * math.sqrt(self.num_layers)

    @property
    def variance_floor(self) -> float:
        """The variance floor of EM routing: 1/100 of the votes' variance at the start (**D**).

        Each variance is that of L votes, and L is small: two or three votes often almost agree by
        chance. With a floor of 1e-6 such capsules get most of every C, and the heavy-tailed
        gradients of log sigma drown all others: a stack of up to three layers does not learn at all
        (copying in reverse, Multi30k). With this floor it learns like the Transformer.
        """
        return 0.01 * self.vote_scale() ** 2

    def expected_cost(self) -> float:
        """Return the cost chi of a capsule in the first M-step at the start, for beta_a (**D**).

        The activation A then starts at 1/2 for every N. With beta_a = 0 the wide capsules of a
        small N would never become active: at N = 1, A and its gradient are exactly 0.
        """
        variance = self.vote_scale() ** 2 * (1 - 1 / self.num_layers) + self.variance_floor
        mass = self.num_layers / (2 * self.num_capsules)  # C = 1/N, a_in about 1/2
        width = self.embed_dim // self.num_capsules
        return width * mass * (math.log(2 * math.pi * variance) + 1) / 2

    def route(self, votes: Tensor, hidden: Tensor) -> Tensor:
        """Route votes ``[..., L, N, D]`` to output capsules ``[..., N, D]``."""
        backend = usable_backend(self.backend, votes, self.training)
        if self.activation is None:
            return dynamic_routing(votes, self.iterations, backend=backend)[0]
        activation = self.split(self.activation(hidden).sigmoid())
        return em_routing(
            votes,
            self.beta_a,
            self.beta_u,
            self.iterations,
            activation,
            variance_floor=self.variance_floor,
            backend=backend,
        )

    def forward(self, layers: List[Tensor]) -> Tensor:
        """Aggregate L layers, each ``[..., d]``, to ``[..., d]``."""
        hidden = F.relu(self.hidden(self.concatenate(layers)))
        votes = self.split(self.votes(hidden)).unflatten(-1, (self.num_capsules, -1))
        return self.route(votes, hidden).flatten(-2)

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return (
            f"routing={self.routing}, layers={self.num_layers}, capsules={self.num_capsules}, "
            f"own={self.own}, iterations={self.iterations}"
        )

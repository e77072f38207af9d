"""Routing-by-agreement over attention heads, in place of the output projection."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from capsnmt.modules.algorithms import OF_HEADS, CapsuleRouting


class HeadRouting(CapsuleRouting):
    r"""Routing of H attention heads to N output capsules, the output of the sublayer (li2019).

    With :math:`\hat O = [O_1, \dots, O_H]` the concatenated heads (li2019 eq 3):

    .. math::
        \Omega^{in} = \mathrm{relu}(W_1 \hat O + b_1), \quad
        V_{h \to n} = (W_2 \Omega^{in} + b_2)_{h, n}            \qquad \text{(eq 5, 6)}

    The output is :math:`[\Omega^{out}_1, \dots, \Omega^{out}_N]`, routed by agreement from the
    votes V (Algorithm 1 or 2).

    **D**: equations 5 and 6 leave the networks :math:`f_h` open. As in the authors' released code,
    and as their parameter counts require, all heads share one hidden layer: W1 is d x d and W2 is
    (H d) x d. Together they replace W^O and add H d^2 + H d parameters (EM: 2 N more).

    **D**: the optional normalisation is one LayerNorm over the concatenated capsules. At the
    papers' N = d a capsule is a single number, which a LayerNorm per capsule would erase.

    **D**: where multi-layer attention concatenates its sources, :math:`\hat O` has n d features and
    W1 is d x (n d). There are still H votes.

    Args:
        embed_dim: d, the model's width.
        num_heads: H, the input capsules.
        routing: ``simple`` (Algorithm 1), ``em`` (Algorithm 2) or ``inverted`` (Tsai et al. 2020),
            see :mod:`capsnmt.modules.algorithms`.
        num_capsules: N, a divisor of d; 0 means d.
        iterations: T.
        normalize: apply a LayerNorm to the output capsules.
        backend: the routing backend, see :mod:`capsnmt.routing.backend`.
        input_dim: width of the concatenated heads; 0 means d.
        coefficients: ``agreement``, or ``random``, see :class:`.CapsuleRouting`.

    Raises:
        ValueError: ``routing`` or ``backend`` is unknown, N does not divide d, T is below 1, or
            ``coefficients`` are not as above.

    >>> import torch
    >>> routing = HeadRouting(8, num_heads=2, routing="em", num_capsules=4)
    >>> routing(torch.randn(5, 3, 8)).shape  # concatenated heads [L, B, d]
    torch.Size([5, 3, 8])
    >>> [name for name, _ in routing.named_parameters() if "." not in name]
    ['beta_a', 'beta_u']
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        routing: str = "em",
        num_capsules: int = 0,
        iterations: int = 3,
        normalize: bool = False,
        backend: str = "auto",
        input_dim: int = 0,
        coefficients: str = "agreement",
    ) -> None:
        super().__init__()
        sizes = embed_dim, num_heads, num_capsules, iterations
        self.choose_routing(routing, OF_HEADS, *sizes, coefficients, backend)
        self.num_heads = num_heads
        self.hidden = nn.Linear(input_dim or embed_dim, embed_dim)
        self.votes = nn.Linear(embed_dim, num_heads * embed_dim)
        self.norm = nn.LayerNorm(embed_dim) if normalize else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Apply Glorot initialisation, to W2 separately for the d x d block of each head.

        A block maps to the votes of one head. Scaled by the fan-out of all H blocks together, the
        votes and the sublayer's output would shrink with the number of heads.
        """
        embed_dim = self.hidden.out_features
        nn.init.xavier_uniform_(self.hidden.weight)
        bound = math.sqrt(6 / (embed_dim + embed_dim))
        width = embed_dim // self.num_capsules
        bound *= self.algorithm.over_heads(self.num_heads, self.num_capsules, width).gain
        nn.init.uniform_(self.votes.weight, -bound, bound)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.votes.bias)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads ``[..., d]`` to the sublayer's output ``[..., d]``."""
        votes = self.votes(F.relu(self.hidden(heads)))
        votes = votes.unflatten(-1, (self.num_heads, self.num_capsules, -1))
        capsules = self.route(votes).flatten(-2)
        return capsules if self.norm is None else self.norm(capsules)

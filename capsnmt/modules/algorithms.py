"""The routing algorithms as heads and layers use them: one class each, in one registry.

``--head-aggregation`` and ``--layer-aggregation``, the modules, the counts of parameters, the
benchmark and the tests read :data:`OF_HEADS` and :data:`OF_LAYERS`.
"""

import math
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from capsnmt.routing import dynamic_routing, em_routing, inverted_routing, simple_routing
from capsnmt.routing.backend import check_name, usable_backend
from capsnmt.routing.checks import check_iterations
from capsnmt.routing.numerics import VARIANCE_FLOOR

COEFFICIENTS = ("agreement", "random")


class Start(NamedTuple):
    """How a module that routes starts.

    Attributes:
        gain: of the Glorot initialisation of W_2.
        bias: every b_2.
        costs: each learned vector.
    """

    gain: float = 1.0
    bias: float = 0.0
    costs: Tuple[float, ...] = ()


class RoutingAlgorithm:
    """Routing-by-agreement from votes ``[..., I, N, D]`` to output capsules ``[..., N, D]``.

    The module that routes, of heads or of layers, makes the votes and holds the learned parameters
    that the algorithm names.

    Attributes:
        operator: the function of the votes and the learned vectors, in :mod:`capsnmt.routing`.
        heads: its name in ``--head-aggregation``; empty: it does not route heads.
        layers: its name in ``--layer-aggregation``; empty: it does not route layers.
        costs: the names of its learned vectors ``[N]``.
        reads_activation: whether it reads an activation a_in of each pair, ``[..., I, N]``; layers
            give it one.
    """

    operator: Callable[..., Any]
    heads = ""
    layers = ""
    costs: Tuple[str, ...] = ()
    reads_activation = False

    def route(self, votes: Tensor, *costs: Tensor, **options: Any) -> Tensor:
        """Route votes ``[..., I, N, D]``, with the options of the operator, to ``[..., N, D]``."""
        result = self.operator(votes, *costs, **options)
        return result[0] if isinstance(result, tuple) else result

    def over_heads(self, inputs: int, capsules: int, width: int) -> Start:
        """Return how a module that routes heads starts, for I, N and D."""
        return Start()

    def over_layers(self, inputs: int, capsules: int, width: int) -> Start:
        """Return how a module that routes layers starts, for I, N and D."""
        raise NotImplementedError

    def variance_floor(self, inputs: int) -> float:
        """Return the variance floor over layers, for I."""
        return VARIANCE_FLOOR


class Simple(RoutingAlgorithm):
    """Simple routing (li2019 Algorithm 1), of heads."""

    heads = "simple"
    operator = staticmethod(simple_routing)


class Dynamic(RoutingAlgorithm):
    """Dynamic routing (dou2019 Algorithm 1), of layers.

    It starts where squash is steepest, with a nearly uniform softmax (**D**). In the first
    iteration S[n] is the sum of L votes / N. With votes around 0 it is about 0, and so are
    squash(S) and its gradient: at N = 512 and the Glorot scale the output is 1e-5. With larger
    votes, the agreement out . V assigns all of a layer to one capsule, and nothing learns either.
    Therefore b_2 sets the length of S to 1/sqrt(3), where squash is steepest and returns 1/4; the
    contribution of W_2 starts small. With few, wide capsules it has the larger part.
    """

    layers = "dynamic-routing"
    operator = staticmethod(dynamic_routing)

    def over_layers(self, inputs: int, capsules: int, width: int) -> Start:
        """Return a small gain, and the bias at which S is as long as it should be."""
        length = capsules / inputs / math.sqrt(3)
        return Start(math.sqrt(2) * min(0.1 * width, 1.0), length / math.sqrt(width))


class EM(RoutingAlgorithm):
    """EM routing (li2019 Algorithm 2, dou2019 Algorithm 2), of heads and of layers."""

    heads = "em"
    layers = "em-routing"
    operator = staticmethod(em_routing)
    costs = ("beta_a", "beta_u")
    reads_activation = True

    def vote_scale(self, inputs: int) -> float:
        """Return the standard deviation of the votes at the start (**D**).

        EM routing returns A mu, about half the mean of L independent votes. At 2 sqrt(L) the
        aggregate has the size of the H^L of unit variance that it replaces, at N = d. A wide
        capsule takes most of its mean from one vote, and is larger.
        """
        return 2 * math.sqrt(inputs)

    def variance_floor(self, inputs: int) -> float:
        """Return 1/100 of the votes' variance at the start (**D**).

        Each variance is that of L votes, and L is small: two or three votes often almost agree by
        chance. With a floor of 1e-6 such capsules get most of every C, and the heavy-tailed
        gradients of log sigma drown all others: a stack of up to three layers does not learn at all
        (copying in reverse, Multi30k). With this floor it learns like the Transformer.
        """
        return 0.01 * self.vote_scale(inputs) ** 2

    def over_layers(self, inputs: int, capsules: int, width: int) -> Start:
        """Return the gain that gives the votes their scale (relu halves the power), and beta_a.

        It is the cost chi of a capsule in the first M-step (**D**). The activation A then starts at
        1/2 at N = d, and on average near it for fewer capsules, each of which may be near 0 or 1.
        With beta_a = 0 the wide capsules of a small N would never become active: at N = 1, A and
        its gradient are exactly 0.
        """
        variance = self.vote_scale(inputs) ** 2 * (1 - 1 / inputs) + self.variance_floor(inputs)
        mass = inputs / (2 * capsules)  # C = 1/N, a_in about 1/2
        beta_a = width * mass * (math.log(2 * math.pi * variance) + 1) / 2
        return Start(math.sqrt(2) * self.vote_scale(inputs), costs=(beta_a, 0.0))


class Inverted(RoutingAlgorithm):
    """Inverted dot-product routing (Tsai et al. 2020), of heads and of layers."""

    heads = "inverted"
    layers = "inverted-routing"
    operator = staticmethod(inverted_routing)

    def over_heads(self, inputs: int, capsules: int, width: int) -> Start:
        """Return a gain (**D**) by which the capsules are no smaller than need be.

        At D > 1 a LayerNorm gives every capsule its size, whatever that of the votes. At D = 1 a
        capsule is the sum of I votes / N, of size v sqrt(I) / N for votes of size v: at N = 512
        next to nothing. Larger votes make it larger, until the logits, of size v^2 sqrt(I) / N,
        give an input to one capsule: from v = 0.4 sqrt(N / sqrt(I)) on a tenth of the capsules
        has nearly everything after three iterations, from twice that on one. The gain is half of
        that, as if W_2 made votes of the size of its gain; relu makes them smaller.
        """
        return Start(1.0 if width > 1 else 0.2 * math.sqrt(capsules / math.sqrt(inputs)))

    def over_layers(self, inputs: int, capsules: int, width: int) -> Start:
        """Return the gain over heads, times sqrt(2): relu halves the power."""
        return Start(math.sqrt(2) * self.over_heads(inputs, capsules, width).gain)


ALGORITHMS = (Simple(), Dynamic(), EM(), Inverted())
OF_HEADS: Dict[str, RoutingAlgorithm] = {
    algorithm.heads: algorithm for algorithm in ALGORITHMS if algorithm.heads
}
OF_LAYERS: Dict[str, RoutingAlgorithm] = {
    algorithm.layers: algorithm for algorithm in ALGORITHMS if algorithm.layers
}


class CapsuleRouting(nn.Module):
    """What routes votes to N output capsules in T iterations: the part that heads and layers share.

    The learned vectors of the algorithm are parameters of the module.

    With ``random`` coefficients EM routing does without agreement, as a control: C = softmax_n(g)
    with g ~ N(0, 1) ``[I, N]``, drawn once.

    **D**: C is the buffer ``coefficients``: the seed fixes it, checkpoints have it, nothing trains
    it. With T = 1 the operator's own C is 1/N, so that its activation is N C a_in.
    """

    coefficients: Optional[Tensor]

    def choose_routing(
        self,
        routing: str,
        algorithms: Dict[str, RoutingAlgorithm],
        embed_dim: int,
        inputs: int,
        num_capsules: int,
        iterations: int,
        coefficients: str,
        backend: str,
    ) -> None:
        """Check and set the attributes; 0 capsules are as many as the model is wide."""
        num_capsules = num_capsules or embed_dim
        if routing not in algorithms:
            raise ValueError(f"routing {routing!r} is unknown; choose from {', '.join(algorithms)}")
        if num_capsules < 0 or embed_dim % num_capsules:
            raise ValueError(f"{num_capsules} capsules do not divide the width {embed_dim}")
        check_iterations(iterations)
        of_em = algorithms[routing].reads_activation and iterations == 1
        if coefficients not in COEFFICIENTS[: 1 + of_em]:
            raise ValueError(
                f"{routing} with {iterations} iterations has no coefficients {coefficients!r}; "
                f"give agreement, or, to EM routing with one iteration, random"
            )
        check_name(backend)
        self.routing, self.algorithm = routing, algorithms[routing]
        self.num_capsules, self.iterations, self.backend = num_capsules, iterations, backend
        self.inputs = inputs
        for name in self.algorithm.costs:
            self.register_parameter(name, nn.Parameter(torch.zeros(num_capsules)))
        C = torch.randn(inputs, num_capsules).softmax(-1) if coefficients == "random" else None
        self.register_buffer("coefficients", C)

    def route(self, votes: Tensor, **options: Any) -> Tensor:
        """Route votes ``[..., I, N, D]`` to output capsules ``[..., N, D]``."""
        backend = usable_backend(self.backend, votes, self.training)
        costs = [getattr(self, name) for name in self.algorithm.costs]
        settings = {"iterations": self.iterations, "backend": backend}
        if self.coefficients is not None:
            a_in = options.get("input_activation", votes.new_ones(votes.shape[:-1]))
            options["input_activation"] = self.num_capsules * self.coefficients * a_in
        return self.algorithm.route(votes, *costs, **settings, **options)

    def extra_repr(self) -> str:
        """Return the settings for ``print(model)``."""
        return (
            f"routing={self.routing}, inputs={self.inputs}, capsules={self.num_capsules}, "
            f"iterations={self.iterations}"
        )

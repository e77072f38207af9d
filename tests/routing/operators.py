"""Every operator as a function of one rank-4 tensor, so that a property is tested on all of them.

Votes ``[tokens, I, N, D]`` and a score cube ``[B, H, L, K]`` have the same rank.
"""

import torch

from capsnmt import routing
from capsnmt.routing.backend import add_kernels


def fixed(*shape: int) -> torch.Tensor:
    """Spread in 0..1 and the same for every token, which is routed alone or with others."""
    return torch.linspace(0.1, 0.9, shape[-1]).expand(shape)


def betas(votes):
    capsules = votes.size(-2)
    return (
        torch.linspace(-0.5, 0.5, capsules, dtype=votes.dtype),
        torch.linspace(0.5, 0.0, capsules, dtype=votes.dtype),
    )


def em(votes, iterations, **options):
    return routing.em_routing(votes, *betas(votes), iterations, **options)


def em_activated(votes, iterations, **options):
    return em(votes, iterations, input_activation=fixed(*votes.shape[:-2]).to(votes), **options)


def em_pair_activated(votes, iterations, **options):
    return em(votes, iterations, input_activation=fixed(*votes.shape[:-1]).to(votes), **options)


def dynamic_masked(votes, iterations, **options):
    inputs = torch.ones(votes.shape[:-2], dtype=torch.bool)
    outputs = torch.ones(*votes.shape[:-3], votes.size(-2), dtype=torch.bool)
    inputs[0], outputs[-1] = False, False  # one token without inputs, one without outputs
    return routing.dynamic_routing(votes, iterations, inputs, outputs, **options)[0]


def masked_cube(operator):
    def run(scores, iterations, **options):
        queries = torch.ones(scores.size(0), scores.size(2), dtype=torch.bool)
        keys = torch.ones(scores.size(0), scores.size(3), dtype=torch.bool)
        queries[0], keys[-1] = False, False
        result = operator(scores, iterations, queries, keys, **options)
        return result[0] if isinstance(result, tuple) else result

    return run


def kernels_of(backend):
    """The kernels that have been added for a backend, by the name of their operator."""
    add_kernels()
    plain = (routing.dynamic, routing.em, routing.inverted, routing.simple, routing.vertical)
    return {
        module.OPERATOR.name: kernel
        for module in plain
        for kernel in module.OPERATOR.kernels
        if kernel.backend == backend
    }


EXPORTED = [name for name in routing.__all__ if name.endswith("_routing")]
NAMES = sorted({*EXPORTED} - {"record_routing"})
# what an operator of the votes alone does not have is below
OPERATORS = {
    **{name: getattr(routing, name) for name in NAMES},
    "dynamic_routing": lambda v, t, **o: routing.dynamic_routing(v, t, **o)[0],
    "dynamic_routing, logits": lambda v, t, **o: routing.dynamic_routing(v, t, **o)[1],
    "dynamic_routing, masked": dynamic_masked,
    "em_routing": em,
    "em_routing, activation of inputs": em_activated,
    "em_routing, activation of pairs": em_pair_activated,
    "vertical_routing": lambda v, t, **o: routing.vertical_routing(v, t, **o)[0],
    "vertical_routing, masked": masked_cube(routing.vertical_routing),
    "horizontal_routing, causal": lambda v, t, **o: routing.horizontal_routing(
        v, t, causal=True, **o
    ),
    "horizontal_routing, masked": masked_cube(routing.horizontal_routing),
}


def run_with_gradient(operator, votes, iterations, **options):
    votes = votes.detach().clone().requires_grad_()
    result = operator(votes, iterations, **options)
    weights = torch.linspace(-1.0, 1.0, result.numel(), dtype=result.dtype).view_as(result)
    (gradient,) = torch.autograd.grad((result * weights).sum(), votes)
    return result.detach(), gradient


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

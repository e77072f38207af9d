"""Layer aggregation as in the papers: one position, and one layer after the other."""

from typing import Callable, List, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tests.routing import oracles

Layer = Callable[[Tensor], Tensor]


def block_affine(map_: nn.Module, capsules: List[Tensor]) -> List[Tensor]:
    """F_l of each layer: from all of them, or from its own (dou2019 eq 8 and footnote 1)."""
    L = len(capsules)
    if map_.weight.dim() == 2:
        return [*linear(torch.cat(capsules), map_.weight, map_.bias).chunk(L)]
    return [*map(linear, capsules, map_.weight, map_.bias.chunk(L))]


def depth_attention(query: Tensor, gain: Tensor, values: List[Tensor]) -> Tensor:
    """sum_i p_i v_i, p = softmax_i(query . RMSNorm(v_i)) (arXiv 2603.15031)."""
    normalised = [gain * v / (v.square().mean() + 1e-6).sqrt() for v in values]
    p = oracles.softmax([query.dot(v) for v in normalised])
    return sum(a * v for a, v in zip(p, values))


def attended(module: nn.Module, y_0: Tensor, sublayers: Sequence[Layer]) -> List[Tensor]:
    """The inputs h_2..h_{n+1} of one position, from the embedding ``[d]`` and n sublayers."""
    S, v, h = module.block, [], [y_0]
    for l, sublayer in enumerate(sublayers, 1):
        v.append(sublayer(h[-1]))
        # each block, as far as it has been computed
        sources = [y_0, *(sum(v[first : first + S]) for first in range(0, l, S))]
        h.append(depth_attention(module.queries[l - 1], module.gains[l - 1], sources))
    return h[1:]


def connected(module: nn.Module, mode: str, y_0: Tensor, layers: Sequence[Layer]) -> List[Tensor]:
    """The states x_2..x_{L+1} of one position, from the embedding ``[d]`` and L layers."""
    if mode == "attention-residuals":
        return attended(module, y_0, layers)
    pre_norm = mode == "dlcl" and len(module.norms) == len(layers) + 1
    y = [y_0]

    def combine(l: int) -> Tensor:
        w = module.weights[l if mode == "dlcl" else l - 1]
        terms = [module.norms[k](y[k]) if pre_norm else y[k] for k in range(l + 1)]
        mixed = sum(w[k] * terms[k] for k in range(l + 1))
        post_norm = mode == "dlcl" and not pre_norm and l > 0
        return module.norms[l - 1](mixed) if post_norm else mixed

    x = [combine(0) if mode == "dlcl" else y_0]
    for l, layer in enumerate(layers, 1):
        y.append(layer(x[-1]))
        x.append(combine(l))
    return x[1:]


def oracle(module: nn.Module, mode: str, states: List[Tensor]) -> Tensor:
    """The aggregate of one position, from L tensors ``[d]``."""
    L, d = len(states), len(states[0])
    if mode == "linear":  # dou2019 eq 3
        return sum(W @ x for W, x in zip(module.combine.weight.split(d, dim=1), states))
    if mode == "iterative":  # mechanisms.md section 3
        a = states[0]
        for merge, x in zip(module.merges, states[1:]):
            ffn = merge.fc2(torch.relu(merge.fc1(torch.cat([a, x]))))
            a = merge.norm(ffn + a + x)
        return a
    if mode == "dynamic":  # dou2019 eq 4
        g = module.fc2(torch.relu(module.fc1(torch.cat(states))))
        return sum(weight * x for weight, x in zip(g.split(d), states))
    if mode == "attention":  # arXiv 2603.15031, of the top only
        return depth_attention(module.query, module.gain, states)
    hidden = [torch.relu(capsule) for capsule in block_affine(module.hidden, states)]  # eq 8
    N = module.num_capsules
    votes = torch.stack(block_affine(module.votes, hidden)).view(L, N, d // N)  # eq 7
    if mode != "em-routing":
        route = getattr(oracles, mode.replace("-", "_"))
        capsules, *_ = route(votes, module.iterations)
    else:
        activation = torch.stack(block_affine(module.activation, hidden))
        capsules, _ = oracles.em_routing(
            votes,
            module.beta_a,
            module.beta_u,
            module.iterations,
            activation.sigmoid(),  # eq 10, and the logistic function
            0.01 * 4 * L,  # a hundredth of the variance with which votes start
            module.coefficients,
        )
    return capsules.flatten()

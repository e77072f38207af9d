"""Layer aggregation as the papers print it: one position and one number at a time."""

from __future__ import annotations

from typing import Callable, List, Sequence

import torch
from torch import Tensor, nn

from tests.routing import oracles
from tests.routing.oracles import total

Layer = Callable[[Tensor], Tensor]


def affine(weight: Tensor, x: list, bias: Tensor | None = None) -> list:
    rows = [total(w * number for w, number in zip(row, x)) for row in weight]
    return rows if bias is None else [row + b for row, b in zip(rows, bias)]


def relu(x: list) -> list:
    return [number.clamp(min=0) for number in x]


def layer_norm(x: list, norm: nn.LayerNorm) -> list:
    mean = total(x) / len(x)
    variance = total((number - mean) ** 2 for number in x) / len(x)
    scaled = [(number - mean) / (variance + norm.eps).sqrt() for number in x]
    return [w * number + b for w, number, b in zip(norm.weight, scaled, norm.bias)]


def block_affine(linear: nn.Module, capsules: List[list]) -> List[list]:
    """F_l of each layer: from all of them, or from its own (dou2019 eq 8 and footnote 1)."""
    if linear.weight.dim() == 2:
        flat = affine(linear.weight, [x for capsule in capsules for x in capsule], linear.bias)
    else:
        bias = linear.bias.reshape(len(capsules), -1)
        flat = []
        for l, capsule in enumerate(capsules):
            flat += affine(linear.weight[l], capsule, bias[l])
    size = len(flat) // len(capsules)
    return [flat[l * size : (l + 1) * size] for l in range(len(capsules))]


def connected(module: nn.Module, mode: str, y_0: Tensor, layers: Sequence[Layer]) -> List[Tensor]:
    """The states x_2..x_{L+1} of one position, from the embedding ``[d]`` and L layers."""
    pre_norm = mode == "dlcl" and len(module.norms) == len(layers) + 1
    y, x, states = [list(y_0)], list(y_0), []

    def combine(l: int) -> list:
        w = module.weights[l if mode == "dlcl" else l - 1]
        terms = [layer_norm(y[k], module.norms[k]) if pre_norm else y[k] for k in range(l + 1)]
        mixed = [total(w[k] * terms[k][i] for k in range(l + 1)) for i in range(len(y_0))]
        if mode == "dlcl" and not pre_norm and l > 0:
            return layer_norm(mixed, module.norms[l - 1])
        return mixed

    if mode == "dlcl":
        x = combine(0)
    for l, layer in enumerate(layers, 1):
        y.append(list(layer(torch.stack(x))))
        x = combine(l)
        states.append(torch.stack(x))
    return states


def oracle(module: nn.Module, mode: str, states: List[Tensor]) -> Tensor:
    """The aggregate of one position, from L tensors ``[d]``."""
    H = [list(state) for state in states]
    L, d = len(H), len(H[0])
    if mode == "linear":  # dou2019 eq 3
        W = [module.combine.weight[:, l * d : (l + 1) * d] for l in range(L)]
        terms = [affine(W[l], H[l]) for l in range(L)]
        return torch.stack([total(term[i] for term in terms) for i in range(d)])
    if mode == "iterative":  # mechanisms.md section 3
        a = H[0]
        for l, merge in zip(range(1, L), module.merges):
            hidden = relu(affine(merge.fc1.weight, a + H[l], merge.fc1.bias))
            ffn = affine(merge.fc2.weight, hidden, merge.fc2.bias)
            a = layer_norm([f + x + h for f, x, h in zip(ffn, a, H[l])], merge.norm)
        return torch.stack(a)
    if mode == "dynamic":  # dou2019 eq 4
        everything = [x for h in H for x in h]
        hidden = relu(affine(module.fc1.weight, everything, module.fc1.bias))
        g = affine(module.fc2.weight, hidden, module.fc2.bias)
        return torch.stack([total(g[l * d + i] * H[l][i] for l in range(L)) for i in range(d)])
    if mode == "attention":  # arXiv 2603.15031, of the top only
        scores = []
        for h in H:
            root = (total(x * x for x in h) / d + 1e-6).sqrt()
            normed = [gain * x / root for gain, x in zip(module.gain, h)]
            scores.append(total(q * x for q, x in zip(module.query, normed)))
        alpha = oracles.softmax(scores)
        return torch.stack([total(alpha[l] * H[l][i] for l in range(L)) for i in range(d)])
    hidden = [relu(capsule) for capsule in block_affine(module.hidden, H)]  # eq 8
    N = module.num_capsules
    votes = torch.stack(  # eq 7
        [torch.stack(vote).reshape(N, d // N) for vote in block_affine(module.votes, hidden)]
    )
    if mode == "dynamic-routing":
        capsules, _ = oracles.dynamic_routing(votes, module.iterations)[:2]
    elif mode == "inverted-routing":
        capsules, _ = oracles.inverted_routing(votes, module.iterations)
    else:
        activation = torch.stack(  # eq 10, and the logistic function
            [
                torch.stack([1 / (1 + (-a).exp()) for a in row])
                for row in block_affine(module.activation, hidden)
            ]
        )
        capsules, _ = oracles.em_routing(
            votes,
            module.beta_a,
            module.beta_u,
            module.iterations,
            activation,
            module.algorithm.variance_floor(L),
        )
    return torch.cat(list(capsules))

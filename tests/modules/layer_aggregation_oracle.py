"""Layer aggregation as in the papers: one position and one number at a time."""

from typing import Callable, List, Optional, Sequence

import torch
from torch import Tensor, nn

from tests.routing import oracles
from tests.routing.oracles import total

Layer = Callable[[Tensor], Tensor]


def affine(weight: Tensor, x: list, bias: Optional[Tensor] = None) -> list:
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


def rms_norm(x: list, gain: Tensor) -> list:
    root = (total(number * number for number in x) / len(x) + 1e-6).sqrt()
    return [g * number / root for g, number in zip(gain, x)]


def depth_attention(query: Tensor, gain: Tensor, values: List[list]) -> Tensor:
    """sum_i p_i v_i, p = softmax_i(query . RMSNorm(v_i)) (arXiv 2603.15031)."""
    scores = [total(w * x for w, x in zip(query, rms_norm(v, gain))) for v in values]
    p = oracles.softmax(scores)
    return torch.stack([total(a * v[i] for a, v in zip(p, values)) for i in range(len(query))])


def attended(module: nn.Module, y_0: Tensor, sublayers: Sequence[Layer]) -> List[Tensor]:
    """The inputs h_2..h_{n+1} of one position, from the embedding ``[d]`` and n sublayers."""
    S, v, h = module.block, [], [y_0]
    for l, sublayer in enumerate(sublayers, 1):
        v.append(list(sublayer(h[-1])))
        sources = [list(y_0)]
        for first in range(0, l, S):  # a block, as far as it has been computed
            sources.append([total(numbers) for numbers in zip(*v[first : first + S])])
        h.append(depth_attention(module.queries[l - 1], module.gains[l - 1], sources))
    return h[1:]


def connected(module: nn.Module, mode: str, y_0: Tensor, layers: Sequence[Layer]) -> List[Tensor]:
    """The states x_2..x_{L+1} of one position, from the embedding ``[d]`` and L layers."""
    if mode == "attention-residuals":
        return attended(module, y_0, layers)
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
        return depth_attention(module.query, module.gain, H)
    hidden = [relu(capsule) for capsule in block_affine(module.hidden, H)]  # eq 8
    N = module.num_capsules
    votes = torch.stack(  # eq 7
        [torch.stack(vote).reshape(N, d // N) for vote in block_affine(module.votes, hidden)]
    )
    if mode != "em-routing":
        route = getattr(oracles, mode.replace("-", "_"))
        capsules, *_ = route(votes, module.iterations)
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
            0.01 * 4 * L,  # a hundredth of the variance with which votes start
            module.coefficients,
        )
    return torch.cat(list(capsules))

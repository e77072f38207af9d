"""Attention in plain loops: to one source or several, its heads gated, mixed or routed.

Vaswani et al. 2017, section 3.2; ampomah2020 eq 7 to 12; duan2020 eq 5 and 8 to 14.
"""

import itertools
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from capsnmt.models.attention import (
    HostedAttention,
    HostedCapsuleAttention,
    HostedMultiLayerAttention,
)
from capsnmt.modules.head_aggregation import HeadComposition, HeadGate, HeadMixing
from capsnmt.modules.multi_layer_attention import VARIANTS
from tests.modules.compare import numbers, randomised
from tests.routing import oracles

WIDTH, HEADS, SOURCE_WIDTH, LENGTH = 6, 2, 8, 4
KINDS = ("linear", "gated", "talking", "composed")
PADDINGS: Dict[str, Optional[Tensor]] = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]]).bool(),
}
FUTURE = torch.full((LENGTH, LENGTH), float("-inf"), dtype=torch.float64).triu(1)
Cube = List[List[List[Tensor]]]  # [H][L][K]


def of_kind(module: Any, kind: str, **std: float) -> Any:
    """Build the aggregation of the heads of the call, as a layer does; draw all parameters."""
    heads = module.call_heads()
    if kind == "gated":
        module.head_gate = HeadGate(module.embed_dim, heads)
    elif kind == "talking":
        module.score_mixing, module.weight_mixing = HeadMixing(heads), HeadMixing(heads)
    elif kind == "composed":
        widths = module.embed_dim, module.memory_dim()
        module.composition = HeadComposition(*widths, heads, rank=3)
    return randomised(module, 0.5, **std)


def plain(kind: str = "linear", **settings: Any) -> HostedAttention:
    torch.manual_seed(0)
    return of_kind(HostedAttention(WIDTH, HEADS, **settings), kind)


def multi_layer(
    variant: str, sources: int, kind: str = "linear", **settings: Any
) -> HostedMultiLayerAttention:
    torch.manual_seed(0)
    module = HostedMultiLayerAttention(
        WIDTH, HEADS, sources, variant, source_dim=SOURCE_WIDTH, **settings
    )
    return of_kind(module, kind)


def capsules(routing: str, kind: str = "linear", **settings: Any) -> HostedCapsuleAttention:
    torch.manual_seed(0)
    parts = {part: routing in (part, "both") for part in ("vertical", "horizontal")}
    module = HostedCapsuleAttention(WIDTH, HEADS, **parts, **settings)
    # the sums that W^up multiplies are large: keep its softmax off its flat ends
    return of_kind(module, kind, head_weights=0.1)


def inputs(sources: int) -> Tuple[Tensor, Tensor]:
    """A query ``[L, B, d]`` and the sources ``[K, B, n * width]``."""
    return numbers(LENGTH, 2, WIDTH), numbers(LENGTH, 2, sources * SOURCE_WIDTH, seed=2)


# what hands on more than one matrix for each of its own heads
ATTENTIONS = (*KINDS, *VARIANTS, "horizontal")


def attention(name: str, **settings: Any) -> Tuple[Any, Tensor, Tensor]:
    """Return one of ``ATTENTIONS`` with its query and its memory, the same of self-attention."""
    if name in VARIANTS:
        return (multi_layer(name, 2, **settings), *inputs(2))
    x = numbers(LENGTH, 2, WIDTH)
    return (plain if name in KINDS else capsules)(name, **settings), x, x


def map_of(side: Any, u: Tensor, place: int) -> Tensor:
    """The map M over the heads of one position: before the softmax (0), or after it (1)."""
    heads = side.gates.out_features // 2
    h = torch.stack([w.dot(u) for w in side.hidden.weight.chunk(2)[place]])
    h = torch.stack([x * (1 + torch.erf(x / math.sqrt(2))) / 2 for x in h])
    M = torch.diag(torch.stack([w.dot(u).tanh() for w in side.gates.weight.chunk(2)[place]]))
    for i in range(side.rank):
        of_rank = slice(i * heads, (i + 1) * heads)
        w_in, w_out = (
            torch.stack([h.dot(column) for column in to[place].T[of_rank]])
            for to in (side.to_in, side.to_out)
        )
        w_in = w_in / (w_in.dot(w_in) / heads + 1e-6).sqrt()
        M = M + torch.outer(w_out, w_in)
    return M


def mixed(
    module: Any, place: int, rows: List[List[Tensor]], x: Tensor, memory: Tensor
) -> List[List[Tensor]]:
    """Return the scores (0) or weights (1) of all heads for the query of x, as the heads mix them.

    The sum over h of P_gh rows[h] for every head g, where P may depend on the query and the key.
    """
    static = (module.score_mixing, module.weight_mixing)[place]
    maps = [None if static is None else static.weight] * len(memory)
    if (composition := module.composition) is not None:
        P = (composition.before, composition.after)[place].weight
        P = P + map_of(composition.query, x, place)
        maps = [P + map_of(composition.key, key, place) for key in memory]
    columns = [
        column if P is None else [sum(p * a for p, a in zip(row, column)) for row in P]
        for P, column in zip(maps, zip(*rows))
    ]
    return [list(row) for row in zip(*columns)]


def gates(gate: Optional[HeadGate], x: Tensor, count: int) -> List[Tensor]:
    """Return the gate of each head for one query; ones without a gate."""
    if gate is None:
        return [torch.ones((), dtype=x.dtype)] * count
    logits = [sum(w * feature for w, feature in zip(row, x)) for row in gate.projection.weight]
    return [1 / (1 + torch.exp(-logit)) for logit in logits]


def softmax(scores: List[Tensor], hidden: List[bool]) -> List[Tensor]:
    exps = [torch.exp(a) * (0 if hide else 1) for a, hide in zip(scores, hidden)]
    return exps if all(hidden) else [x / sum(exps) for x in exps]


class Projections(NamedTuple):
    """W^q, W^k, W^v of one source, with their biases."""

    q: Tuple[Tensor, Tensor]
    k: Tuple[Tensor, Tensor]
    v: Tuple[Tensor, Tensor]


def projections(module: Any, source: int) -> Projections:
    d, width = module.embed_dim, module.source_dim
    rows = slice(source * d, (source + 1) * d)
    found = [(map_.weight[rows], map_.bias[rows]) for map_ in (module.q_proj, module.k_proj)]
    if variant_of(module) == "M-01":  # only the sum of the sources' biases is defined: use shares
        v = module.v_proj.weight[:, source * width : (source + 1) * width]
        return Projections(*found, (v, module.v_proj.bias / module.num_sources))
    return Projections(*found, (module.v_proj.weight[rows], module.v_proj.bias[rows]))


def variant_of(module: Any) -> str:
    return getattr(module, "variant", "M-10")


def routed(module: Any, scores: Cube, real: Optional[Tensor], causal: bool) -> Cube:
    """E' of one sentence's cube E (duan2020, section 3.2 and eq 8 to 14)."""
    if not hasattr(module, "vertical"):
        return scores
    e = torch.stack([torch.stack([torch.stack(row) for row in head]) for head in scores])
    H, L, K = e.shape
    added = torch.zeros_like(e)
    if module.vertical:
        omega, b = oracles.vertical_routing(e, module.iterations, real, real)
        sums = [oracles.total(b[h, q] for q in range(L)) for h in range(H)]
        W_up, b_up = module.head_weights.weight, module.head_weights.bias
        Lambda = [  # eq 11
            oracles.total(W_up[h, j] * sums[j] for j in range(H)) + b_up[h] for h in range(H)
        ]
        added = added + torch.stack([p * omega for p in oracles.softmax(Lambda)])  # eq 10
    if module.horizontal:
        added = added + oracles.horizontal_routing(e, module.iterations, real, real, causal)
    return [[[e[h, q, k] + added[h, q, k] for k in range(K)] for q in range(L)] for h in range(H)]


def oracle(
    module: Any,
    query: Tensor,
    memory: Tensor,
    padding: Optional[Tensor] = None,
    causal: bool = False,
) -> Tuple[Tensor, ...]:
    """The output ``[L, B, d]``, and what the attention call has for each of its heads.

    Weights ``[H, B, L, K]`` before heads talk, values ``[B, H, K, d_h]``, and outputs
    ``[B, H, L, d_h]`` before a gate. The heads of the call are H of all sources, or H of each. A
    row that sees nothing has the weights 0.
    """
    n, heads, width = getattr(module, "num_sources", 1), module.num_heads, module.head_dim
    joint, sums = variant_of(module)[2] == "0", variant_of(module)[3] == "1"
    maps = [projections(module, i) for i in range(n)]
    own = [slice(h * width, (h + 1) * width) for h in range(heads)]
    parts = [*itertools.product(range(n), range(heads))]
    outputs, all_weights, all_values, all_heads = [], [], [], []

    def of_call(each: List[Tensor]) -> Tensor:
        """Join what the heads of all sources have, where they share their weights."""
        if joint:
            of_head = [each[h::heads] for h in range(heads)]
            each = [sum(x) if sums else torch.cat(x, -1) for x in of_head]
        return torch.stack(each)

    for b in range(query.size(1)):
        f = memory[:, b].split(module.source_dim, dim=-1)
        E, V = [], []
        for i, h in parts:  # ampomah2020 eq 7
            Q, K, values = (
                [(W @ x + bias)[own[h]] for x in states]
                for (W, bias), states in zip(maps[i], (query[:, b], f[i], f[i]))
            )
            E.append([[q.dot(k) / math.sqrt(width) for k in K] for q in Q])
            V.append(values)
        if joint:  # eq 9
            E = [[[sum(x) for x in zip(*rows)] for rows in zip(*E[h::heads])] for h in range(heads)]
        all_values.append(of_call([torch.stack(values) for values in V]))
        E = routed(module, E, None if padding is None else ~padding[b], causal)
        for l, x in enumerate(query[:, b]):
            hidden = [
                (causal and k > l) or (padding is not None and bool(padding[b, k]))
                for k in range(memory.size(0))
            ]
            scores = mixed(module, 0, [head[l] for head in E], x, memory[:, b])
            weights = [softmax(row, hidden) for row in scores]
            used = mixed(module, 1, weights, x, memory[:, b])
            gate = gates(module.head_gate, x, len(E))
            calls = [h if joint else part for part, (_, h) in enumerate(parts)]
            c = [sum(w * v for w, v in zip(used[call], V[i])) for i, call in enumerate(calls)]
            all_heads.append(of_call(c))
            c = [gate[call] * each for call, each in zip(calls, c)]  # eq 11
            contexts = [torch.cat(c[i * heads : (i + 1) * heads]) for i in range(n)]
            outputs.append(module.out_proj(sum(contexts) if sums else torch.cat(contexts)))  # eq 12
            all_weights.append(torch.stack([torch.stack(row) for row in weights]))
    L, B = query.shape[:2]
    output = torch.stack(outputs).view(B, L, -1).transpose(0, 1)
    weights = torch.stack(all_weights).view(B, L, len(E), -1).permute(2, 0, 1, 3)
    heads_of_call = torch.stack(all_heads).unflatten(0, (B, L)).transpose(1, 2)
    return output, weights, torch.stack(all_values), heads_of_call

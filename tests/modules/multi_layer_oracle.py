"""Multi-layer attention as ampomah2020 prints it: one source, head and position at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from capsnmt.models.attention import HostedMultiLayerAttention as MultiLayerAttention
from tests.modules.attention_oracle import gates, mixed, set_kind, softmax
from tests.modules.compare import numbers, randomised

WIDTH, HEADS, SOURCE_WIDTH = 4, 2, 6
HEAD_WIDTH = WIDTH // HEADS
LENGTH, KEYS, BATCH = 2, 4, 2
JOINT = ("M-00", "M-01")

PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]]).bool(),
}


def attention(
    variant: str, num_sources: int, kind: str = "linear", **settings: Any
) -> MultiLayerAttention:
    torch.manual_seed(0)
    settings = {"source_dim": SOURCE_WIDTH, **settings}
    module = MultiLayerAttention(WIDTH, HEADS, num_sources, variant, **settings)
    set_kind(module, kind)
    return randomised(module, 0.5)


def inputs(num_sources: int) -> Tuple[Tensor, Tensor]:
    """A query ``[L, B, d]`` and sources ``[K, B, n * source_dim]``."""
    memory = numbers(KEYS, BATCH, num_sources * SOURCE_WIDTH, seed=2)
    return numbers(LENGTH, BATCH, WIDTH), memory


class Projections(NamedTuple):
    """W^q, W^k, W^v of one source, with their biases."""

    q: Tuple[Tensor, Tensor]
    k: Tuple[Tensor, Tensor]
    v: Tuple[Tensor, Tensor]


def projections(module: MultiLayerAttention, source: int) -> Projections:
    rows = slice(source * WIDTH, (source + 1) * WIDTH)
    columns = slice(source * SOURCE_WIDTH, (source + 1) * SOURCE_WIDTH)
    if module.variant == "M-01":  # only the sum of the sources' biases is defined: use shares
        v = module.v_proj.weight[:, columns], module.v_proj.bias / module.num_sources
    else:
        v = module.v_proj.weight[rows], module.v_proj.bias[rows]
    return Projections(
        (module.q_proj.weight[rows], module.q_proj.bias[rows]),
        (module.k_proj.weight[rows], module.k_proj.bias[rows]),
        v,
    )


def oracle(
    module: MultiLayerAttention, query: Tensor, memory: Tensor, padding: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """Equations 7 to 12: outputs ``[L, B, d]`` and weights ``[n, H, B, L, K]`` of each source.

    Gated or talking heads are those of the attention call: H of all sources, or H of each.
    """
    n, joint = module.num_sources, module.variant[2] == "0"
    maps = [projections(module, i) for i in range(n)]
    own = [slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH) for h in range(HEADS)]
    outputs, all_weights = {}, {}
    for b in range(query.size(1)):
        hidden = [padding is not None and bool(padding[b, k]) for k in range(memory.size(0))]
        f = [memory[:, b, i * SOURCE_WIDTH : (i + 1) * SOURCE_WIDTH] for i in range(n)]
        for l in range(query.size(0)):
            a, V = {}, {}
            for i, h in itertools.product(range(n), range(HEADS)):  # eq 7
                (Wq, bq), (Wk, bk), (Wv, bv) = maps[i]
                Q = (Wq @ query[l, b] + bq)[own[h]]
                a[i, h] = [Q.dot((Wk @ x + bk)[own[h]]) / math.sqrt(HEAD_WIDTH) for x in f[i]]
                V[i, h] = [(Wv @ x + bv)[own[h]] for x in f[i]]
            scores = list(a.values())  # eq 8
            if joint:
                scores = [[sum(k) for k in zip(*(a[i, h] for i in range(n)))] for h in range(HEADS)]
            weights = [softmax(row, hidden) for row in mixed(module.score_mixing, scores)]  # eq 9
            used = mixed(module.weight_mixing, weights)
            gate = gates(module.head_gate, query[l, b], len(scores))
            c: List[List[Tensor]] = [[] for _ in range(n)]
            for i, h in itertools.product(range(n), range(HEADS)):
                call = h if joint else i * HEADS + h
                c[i].append(gate[call] * sum(w * x for w, x in zip(used[call], V[i, h])))  # eq 11
                all_weights[i, h, b, l] = torch.stack(weights[call])
            contexts = [torch.cat(heads) for heads in c]
            Wo, bo = module.out_proj.weight, module.out_proj.bias
            joined = sum(contexts) if module.variant[3] == "1" else torch.cat(contexts)  # eq 12
            outputs[l, b] = Wo @ joined + bo
    L, B = query.shape[:2]
    output = torch.stack([torch.stack([outputs[l, b] for b in range(B)]) for l in range(L)])
    places = itertools.product(range(n), range(HEADS), range(B), range(L))
    return output, torch.stack([all_weights[p] for p in places]).view(n, HEADS, B, L, -1)

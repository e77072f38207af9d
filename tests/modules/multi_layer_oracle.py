"""Multi-layer attention as ampomah2020 prints it: one source, head and position at a time."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from capsnmt.modules.multi_layer_attention import MultiLayerAttention

WIDTH, HEADS, SOURCE_WIDTH = 4, 2, 6
HEAD_WIDTH = WIDTH // HEADS
LENGTH, KEYS, BATCH = 2, 4, 2
JOINT, SUMS = ("M-00", "M-01"), ("M-01", "M-11")

PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]]).bool(),
}


def attention(variant: str, num_sources: int, **settings: Any) -> MultiLayerAttention:
    torch.manual_seed(0)
    settings = {"source_dim": SOURCE_WIDTH, **settings}
    module = MultiLayerAttention(WIDTH, HEADS, num_sources, variant, **settings).double().eval()
    for parameter in module.parameters():  # out_proj's bias starts at zero, where it proves nothing
        nn.init.normal_(parameter, std=0.5)
    return module


def inputs(num_sources: int, batch: int = BATCH, length: int = LENGTH) -> Tuple[Tensor, Tensor]:
    """A query ``[L, B, d]`` and sources ``[K, B, n * source_dim]``."""
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(length, batch, WIDTH, dtype=torch.float64, generator=generator)
    width = num_sources * SOURCE_WIDTH
    memory = torch.randn(KEYS, batch, width, dtype=torch.float64, generator=generator)
    return query.requires_grad_(), memory.requires_grad_()


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


def softmax(scores: List[Tensor], hidden: List[bool]) -> List[Tensor]:
    exps = [torch.exp(a) * (0 if hide else 1) for a, hide in zip(scores, hidden)]
    return [x / sum(exps) for x in exps]


def oracle(
    module: MultiLayerAttention, query: Tensor, memory: Tensor, padding: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """Equations 7 to 12: outputs ``[L, B, d]`` and weights ``[n, H, B, L, K]`` of each source."""
    n, joint = module.num_sources, module.variant[2] == "0"
    maps = [projections(module, i) for i in range(n)]
    outputs, all_weights = {}, {}
    for b in range(query.size(1)):
        hidden = [padding is not None and bool(padding[b, k]) for k in range(memory.size(0))]
        f = [memory[:, b, i * SOURCE_WIDTH : (i + 1) * SOURCE_WIDTH] for i in range(n)]
        for l in range(query.size(0)):
            c: List[List[Tensor]] = [[] for _ in range(n)]
            for h in range(HEADS):
                own = slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH)
                a, V = [], []
                for i in range(n):  # eq 7
                    (Wq, bq), (Wk, bk), (Wv, bv) = maps[i]
                    Q = (Wq @ query[l, b] + bq)[own]
                    K = [(Wk @ x + bk)[own] for x in f[i]]
                    V.append([(Wv @ x + bv)[own] for x in f[i]])
                    a.append([Q.dot(key) / math.sqrt(HEAD_WIDTH) for key in K])
                for i in range(n):
                    scores = [sum(of_key) for of_key in zip(*a)] if joint else a[i]  # eq 9, else 8
                    weights = softmax(scores, hidden)
                    c[i].append(sum(w * value for w, value in zip(weights, V[i])))  # eq 11
                    all_weights[i, h, b, l] = torch.stack(weights)
            contexts = [torch.cat(heads) for heads in c]
            Wo, bo = module.out_proj.weight, module.out_proj.bias
            joined = sum(contexts) if module.variant[3] == "1" else torch.cat(contexts)  # eq 12
            outputs[l, b] = Wo @ joined + bo
    L, B = query.shape[:2]
    output = torch.stack([torch.stack([outputs[l, b] for b in range(B)]) for l in range(L)])
    flat = torch.stack(
        [
            all_weights[i, h, b, l]
            for i in range(n)
            for h in range(HEADS)
            for b in range(B)
            for l in range(L)
        ]
    )
    return output, flat.view(n, HEADS, B, L, -1)

"""Multi-head attention as Vaswani et al. print it, with gated or talking heads, in plain loops."""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from capsnmt.models.attention import HostedAttention as Attention
from capsnmt.modules.head_aggregation import HeadGate, HeadMixing
from tests.modules.compare import randomised

WIDTH, HEADS = 12, 3
HEAD_WIDTH = WIDTH // HEADS
KINDS = ("linear", "gated", "talking")
PADDINGS = {
    "none": None,
    "left": torch.tensor([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool(),
    "right": torch.tensor([[0, 0, 0, 0, 1], [0, 0, 1, 1, 1]]).bool(),
}


def set_kind(module: Attention, kind: str) -> None:
    """Build the aggregation of the heads of the attention call, as a layer does."""
    heads = module.call_heads()
    if kind == "gated":
        module.head_gate = HeadGate(module.embed_dim, heads)
    elif kind == "talking":
        module.score_mixing, module.weight_mixing = HeadMixing(heads), HeadMixing(heads)


def attention(kind: str = "linear", **settings: object) -> Attention:
    """Return an attention in double precision with random parameters, in evaluation mode."""
    torch.manual_seed(0)
    module = Attention(WIDTH, HEADS, **settings)
    set_kind(module, kind)
    return randomised(module, 0.5)


def future(length: int) -> Tensor:
    """Return the mask of a causal attention."""
    return torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)


def mixed(mixing: Optional[HeadMixing], rows: List[List[Tensor]]) -> List[List[Tensor]]:
    """Return sum_h P_gh rows[h] for every head g; ``rows`` without a mixing."""
    if mixing is None:
        return rows
    return [[sum(p * x for p, x in zip(P, column)) for column in zip(*rows)] for P in mixing.weight]


def gates(gate: Optional[HeadGate], x: Tensor, count: int) -> List[Tensor]:
    """Return the gate of each head for one query; ones without a gate."""
    if gate is None:
        return [torch.ones((), dtype=x.dtype)] * count
    logits = [sum(w * feature for w, feature in zip(row, x)) for row in gate.projection.weight]
    return [1 / (1 + torch.exp(-logit)) for logit in logits]


def softmax(scores: List[Tensor], hidden: List[bool]) -> List[Tensor]:
    """Return the softmax of the scores that are not hidden, 0 elsewhere."""
    exps = [torch.exp(a) * (0 if hide else 1) for a, hide in zip(scores, hidden)]
    return [x / sum(exps) for x in exps]


def oracle(
    module: Attention,
    query: Tensor,
    memory: Tensor,
    padding: Optional[Tensor] = None,
    causal: bool = False,
) -> Tuple[Tensor, Tensor]:
    """Vaswani et al. 2017, section 3.2, one sentence and position at a time, ``[L, B, d]``.

    Also return the weights of each head, ``[H, B, L, K]``, before heads talk.
    """
    q, k, v = module.q_proj(query), module.k_proj(memory), module.v_proj(memory)
    outputs: List[Tensor] = []
    all_weights: List[Tensor] = []
    own = [slice(h * HEAD_WIDTH, (h + 1) * HEAD_WIDTH) for h in range(HEADS)]
    for l in range(query.size(0)):
        for b in range(query.size(1)):
            hidden = [
                (causal and key > l) or (padding is not None and bool(padding[b, key]))
                for key in range(memory.size(0))
            ]
            scores = [[q[l, b, h].dot(x[h]) / math.sqrt(HEAD_WIDTH) for x in k[:, b]] for h in own]
            scores = mixed(module.score_mixing, scores)
            weights = [softmax(row, hidden) for row in scores]
            all_weights.append(torch.stack([torch.stack(row) for row in weights]))
            weights = mixed(module.weight_mixing, weights)
            gate = gates(module.head_gate, query[l, b], HEADS)
            heads = [
                g * sum(w * x[h] for w, x in zip(row, v[:, b]))
                for g, row, h in zip(gate, weights, own)
            ]
            outputs.append(module.out_proj(torch.cat(heads)))
    L, B = query.shape[:2]
    weights = torch.stack(all_weights).view(L, B, HEADS, -1).permute(2, 1, 0, 3)
    return torch.stack(outputs).view(L, B, -1), weights

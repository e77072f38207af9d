"""Attention, head after head: to one source or several, its heads gated, mixed or routed.

Vaswani et al. 2017, section 3.2; ampomah2020 eq 7 to 12; duan2020 eq 5 and 8 to 14.
"""

import itertools
import math
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

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
    h = gelu(side.hidden.weight.chunk(2)[place] @ u)
    M = torch.diag((side.gates.weight.chunk(2)[place] @ u).tanh())
    for i in range(side.rank):
        of_rank = slice(i * heads, (i + 1) * heads)
        w_in, w_out = (h @ to[place][:, of_rank] for to in (side.to_in, side.to_out))
        w_in = w_in / (w_in.dot(w_in) / heads + 1e-6).sqrt()
        M = M + torch.outer(w_out, w_in)
    return M


def mixed(module: Any, place: int, rows: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """Return the scores (0) or weights (1) ``[H, K]`` for the query of x, as the heads mix them.

    The sum over h of P_gh rows[h] for every head g, where P may depend on the query and the key.
    """
    static = (module.score_mixing, module.weight_mixing)[place]
    if static is not None:
        return static.weight @ rows
    if (composition := module.composition) is None:
        return rows
    P = (composition.before, composition.after)[place].weight
    P = P + map_of(composition.query, x, place)
    maps = [P + map_of(composition.key, key, place) for key in memory]
    return torch.stack([of_key @ column for of_key, column in zip(maps, rows.T)], dim=1)


def softmax(scores: Tensor, hidden: Tensor) -> Tensor:
    exps = scores.exp() * ~hidden
    return exps if hidden.all() else exps / exps.sum(-1, keepdim=True)


def projections(module: Any, source: int) -> List[Tuple[Tensor, Tensor]]:
    """W^q, W^k, W^v of one source, with their biases."""
    d, width = module.embed_dim, module.source_dim
    rows = slice(source * d, (source + 1) * d)
    maps = (module.q_proj, module.k_proj, module.v_proj)
    found = [(map_.weight[rows], map_.bias[rows]) for map_ in maps]
    if variant_of(module) == "M-01":  # only the sum of the sources' biases is defined: use shares
        v = module.v_proj.weight[:, source * width : (source + 1) * width]
        found[2] = v, module.v_proj.bias / module.num_sources
    return found


def variant_of(module: Any) -> str:
    return getattr(module, "variant", "M-10")


def routed(module: Any, e: Tensor, real: Tensor, causal: bool) -> Tensor:
    """E' of one sentence's cube E ``[H, L, K]`` (duan2020, section 3.2 and eq 8 to 14)."""
    if not hasattr(module, "vertical"):
        return e
    found = e
    if module.vertical:
        omega, b = oracles.vertical_routing(e, module.iterations, real, real)
        Lambda = module.head_weights.weight @ b.sum(1) + module.head_weights.bias  # eq 11
        found = found + torch.stack([p * omega for p in Lambda.softmax(0)])  # eq 10
    if module.horizontal:
        found = found + oracles.horizontal_routing(e, module.iterations, real, real, causal)
    return found


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
                (states @ W.T + bias)[:, own[h]]
                for (W, bias), states in zip(maps[i], (query[:, b], f[i], f[i]))
            )
            E.append(Q @ K.T / math.sqrt(width))
            V.append(values)
        if joint:  # eq 9
            E = [sum(E[h::heads]) for h in range(heads)]
        all_values.append(of_call(V))
        padded = torch.zeros(len(memory)).bool() if padding is None else padding[b]
        E = routed(module, torch.stack(E), ~padded, causal)
        for l, x in enumerate(query[:, b]):
            hidden = padded | ((torch.arange(len(memory)) > l) & causal)
            scores = mixed(module, 0, E[:, l], x, memory[:, b])
            weights = softmax(scores, hidden)
            used = mixed(module, 1, weights, x, memory[:, b])
            gate = torch.ones(len(E))
            if module.head_gate is not None:
                gate = (module.head_gate.projection.weight @ x).sigmoid()
            calls = [h if joint else part for part, (_, h) in enumerate(parts)]
            c = [used[call] @ V[i] for i, call in enumerate(calls)]
            all_heads.append(of_call(c))
            c = [gate[call] * each for call, each in zip(calls, c)]  # eq 11
            contexts = [torch.cat(c[i * heads : (i + 1) * heads]) for i in range(n)]
            outputs.append(module.out_proj(sum(contexts) if sums else torch.cat(contexts)))  # eq 12
            all_weights.append(weights)
    L, B = query.shape[:2]
    output = torch.stack(outputs).view(B, L, -1).transpose(0, 1)
    weights = torch.stack(all_weights).view(B, L, len(E), -1).permute(2, 0, 1, 3)
    heads_of_call = torch.stack(all_heads).unflatten(0, (B, L)).transpose(1, 2)
    return output, weights, torch.stack(all_values), heads_of_call
